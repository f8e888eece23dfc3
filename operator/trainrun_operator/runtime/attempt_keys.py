"""The key of an attempt: what its ranks prove to each other that they know.

Layer: runtime, pure. Derived anew whenever it is needed, and told to agents alone: it stands in no
status, log, environment or store.
"""

from __future__ import annotations

import hmac
import json

_SALT = b"trainrun attempt key v1"


def attempt_key(secret: bytes, *, run_uid: str, attempt: int) -> str:
    """Key of an attempt (64 hexadecimal digits) by HKDF-SHA256 (RFC 5869, one block of output);
    `secret` is the operator's own, of at least 32 random bytes."""
    extracted = hmac.digest(_SALT, secret, "sha256")
    info = json.dumps([run_uid, attempt]).encode()
    return hmac.digest(extracted, info + b"\x01", "sha256").hex()
