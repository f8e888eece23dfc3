"""What a token says of itself, before anybody has checked that it is genuine.

Layer: cluster; pure. Good for one thing: a token that does not even claim to be that of a pod of
ours need not be shown to the API server.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from trainrun_operator.kube.raw import mapping, text

LONGEST_TOKEN = 8192
"""Characters; those of a cluster have one or two thousand."""
EXPIRED = 24 * 3600.0
"""Seconds after its end until a token is not even shown to the API server: that one judges by its
own clock, and ours may be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which pod's token it claims to be, for our audience and of these days."""

    namespace: str
    pod: str
    pod_uid: str


def claims_of(token: str, *, audience: str, now: float) -> Claims | None:
    """None: this is no token of a pod for this audience, or one that has ended long ago.

    `now` is Unix time in seconds.
    """
    parts = token.split(".")
    if len(token) > LONGEST_TOKEN or len(parts) != 3 or not token.isascii():
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        payload = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    audiences, expires = payload.get("aud"), payload.get("exp")
    if audience not in (audiences if isinstance(audiences, list) else [audiences]):
        return None
    if not isinstance(expires, int | float) or expires + EXPIRED < now:
        return None
    cluster = mapping(payload, "kubernetes.io")
    pod = mapping(cluster, "pod")
    claims = Claims(
        namespace=text(cluster, "namespace"), pod=text(pod, "name"), pod_uid=text(pod, "uid")
    )
    return claims if claims.namespace and claims.pod and claims.pod_uid else None
