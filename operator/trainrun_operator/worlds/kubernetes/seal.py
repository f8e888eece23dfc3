"""The seal of a pod: proof that this installation of the operator has created it for its run.

Layer: worlds/kubernetes; pure. Labels alone prove nothing, since anybody who may create pods can
write them. The key never leaves the operator's own Secret. A seal can be copied within its
namespace, onto a pod of the same name: the trust boundary is the namespace.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.observing.pods import PodFact

_PURPOSE = "trainrun pod seal v1"


def key_id(key: bytes) -> str:
    """Tells one key from another (8 hexadecimal digits), and is no secret."""
    return hmac.new(key, b"trainrun key id", hashlib.sha256).hexdigest()[:8]


@functools.lru_cache(maxsize=4096)  # each pass over a run looks at each of its pods
def seal_of(
    key: bytes,
    *,
    namespace: str,
    name: str,
    run_uid: str,
    slot: int,
    creation: int,
    template_hash: str,
) -> str:
    """The seal (64 hexadecimal digits) of the pod that is all of this."""
    # JSON keeps the parts apart: no two different pods make the same text.
    sealed = json.dumps([_PURPOSE, namespace, name, run_uid, slot, creation, template_hash])
    return hmac.new(key, sealed.encode(), hashlib.sha256).hexdigest()


def is_ours(pod: PodFact, run_uid: str, seal_key: bytes) -> bool:
    """Whether an operator of this installation has created the pod for this run."""
    if not run_uid or pod.run_uid != run_uid or pod.owner_uid != run_uid:
        return False
    expected = seal_of(
        seal_key,
        namespace=pod.namespace,
        name=pod.name,
        run_uid=run_uid,
        slot=pod.slot,
        creation=pod.creation,
        template_hash=pod.template_hash,
    )
    return hmac.compare_digest(expected.encode(), pod.seal.encode())
