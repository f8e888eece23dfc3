"""Who may speak for a worker in a cluster: the pod itself, with its own token.

Layer: runtime. A token is believed when the API server says that it belongs to a pod, for our
audience; the pod must be one that we created for the run, and speaks for itself alone.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainrun.protocol import AgentState
from trainrun_operator.runtime.agent_server import Authenticator, Refusal
from trainrun_operator.worlds.kubernetes.errors import KubeError
from trainrun_operator.worlds.kubernetes.pods import PodFact
from trainrun_operator.worlds.kubernetes.token_review import PodIdentity

BELIEVED_FOR = 300.0
"""Seconds until a token is reviewed again: a deleted pod is refused at once by our own cache."""
DISBELIEVED_FOR = 5.0
"""Seconds until a token is reviewed again that was refused: an API server that has just been
started, or has not yet heard of a new pod, refuses good ones."""
REMEMBERED = 20_000
"""Reviewed tokens kept."""

Review = Callable[[str], Awaitable[PodIdentity | None]]
FindPod = Callable[[str, str], PodFact | None]
IsOurs = Callable[[PodFact, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reviewed:
    identity: PodIdentity | None
    at: float

    def holds(self, now: float) -> bool:
        """Whether it need not be asked again."""
        return now - self.at < (DISBELIEVED_FOR if self.identity is None else BELIEVED_FOR)


def pod_tokens(
    *,
    review: Review,
    find: FindPod,
    is_ours: IsOurs,
    clock: Callable[[], float] = time.monotonic,
) -> Authenticator:
    """The authenticator of a cluster.

    `find` gets namespace and name of a pod, `is_ours` a pod and a run's uid.
    """
    known: dict[str, _Reviewed] = {}

    async def identity_of(token: str) -> PodIdentity | None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        found = known.get(digest)
        if found is not None and found.holds(clock()):
            return found.identity
        try:
            identity = await review(token)
        except KubeError:
            if found is None or found.identity is None:
                raise
            return found.identity  # who spoke all the time must not fall silent by our trouble
        while len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[digest] = _Reviewed(identity=identity, at=clock())
        return identity

    async def authenticate(token: str, state: AgentState) -> Refusal | None:
        if not token:
            return Refusal(status=401, message=f"worker {state.worker} showed no token")
        try:
            identity = await identity_of(token)
        except KubeError as error:
            return Refusal(status=503, message=f"the token cannot be checked now: {error}")
        if identity is None:
            message = f"the API server does not accept the token of worker {state.worker}"
            return Refusal(status=401, message=message)
        pod = find(identity.namespace, identity.pod)
        if pod is None or pod.uid != identity.pod_uid:
            # Our cache may be a moment behind a pod that has just been created.
            return Refusal(status=503, message=f"pod {identity.pod} is not known yet")
        if pod.name != state.worker or not is_ours(pod, state.run_uid):
            message = (
                f"pod {identity.namespace}/{identity.pod} is not worker {state.worker} of run "
                f"{state.run}: it was not created for it by this operator"
            )
            return Refusal(status=403, message=message)
        return None

    return authenticate
