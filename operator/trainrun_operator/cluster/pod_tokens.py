"""Authenticates a worker in a cluster by its pod's own token.

Layer: cluster. A token is accepted when the API server says that it belongs to an existing pod,
for our audience; we must have created that pod for the run, and it speaks only for itself.
Invariants: the API server only reviews tokens that claim to belong to one of our pods, and a good
token only authenticates that pod; tokens of strangers neither evict cached good tokens nor block
the review of others.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from trainrun.contract.agent_state import AgentState
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.kube.raw import mapping, text
from trainrun_operator.runtime.agent_server import AuthenticatedCaller, Authenticator, Refusal
from trainrun_operator.runtime.listener import ConnectionLimiter
from trainrun_operator.worlds.kubernetes.names import AUDIENCE
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact

LONGEST_TOKEN = 8192
"""Characters; those of a cluster have one or two thousand."""
EXPIRED = 24 * 3600.0
"""Seconds after its expiry in which a token is still sent to the API server, which judges by its
own clock; ours may be wrong."""
TRUSTED_FOR = 900.0
"""Seconds until a good token is reviewed again: our own cache refuses a deleted pod at once; a
removed service account is noticed this much later. With 2,000 agents that is a review every half
second."""
REFUSED_FOR = 5.0
"""Seconds until a refused token is reviewed again: an API server that has just started, or does
not know a new pod yet, refuses good tokens."""
PAUSE = 1.0
"""Seconds after such a refusal in which no other token from the same address for the same pod is
reviewed."""
REVIEWS = 8
"""Concurrent reviews, in addition to all other calls to the API server."""
REMEMBERED_PODS, REMEMBERED_REFUSALS = 20_000, 2_000
TOKENS = 2
"""Good tokens kept per pod: the kubelet renews them, and for a moment both are in use."""

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_EXTRA = "authentication.kubernetes.io/"
_USER = "system:serviceaccount:"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """The pod that a token authenticates, or claims to."""

    namespace: str
    pod: str
    pod_uid: str


Review = Callable[[str], Awaitable[PodIdentity | None]]
FindPod = Callable[[str, str], PodFact | None]
IsOurs = Callable[[PodFact, str], bool]


def claims_of(token: str, *, audience: str, now: float) -> PodIdentity | None:
    """The pod that the token claims to belong to; None: it is not a pod's token for this audience,
    or it expired long ago.

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
    claims = PodIdentity(
        namespace=text(cluster, "namespace"), pod=text(pod, "name"), pod_uid=text(pod, "uid")
    )
    return claims if claims.namespace and claims.pod and claims.pod_uid else None


def pod_tokens(
    *,
    review: Review,
    find: FindPod,
    is_ours: IsOurs,
    clock: Callable[[], float] = time.monotonic,
    time_of_day: Callable[[], float] = time.time,
) -> Authenticator:
    """The authenticator of a cluster.

    `find` gets namespace and name of a pod, `is_ours` a pod and a run's uid.
    """
    reviews = _Reviews(review, clock)

    async def authenticate(token: str, address: str) -> AuthenticatedCaller | Refusal:
        if not token:
            return Refusal(status=401, message="the request has no token")
        claims = claims_of(token, audience=AUDIENCE, now=time_of_day())
        if claims is None:
            message = f"the token is not a pod's token for the audience {AUDIENCE}"
            return Refusal(status=401, message=message)
        pod = find(claims.namespace, claims.pod)
        if pod is None or pod.uid != claims.pod_uid:
            # Our cache may lag behind a new pod.
            return Refusal(status=503, message=f"pod {claims.pod} is not known yet")
        if not is_ours(pod, pod.run_uid):
            return _not_ours(pod)
        refusal = await reviews.refusal(token, claims, address)
        return refusal or _caller(pod)

    return authenticate


def _caller(pod: PodFact) -> AuthenticatedCaller:
    def objection(state: AgentState) -> Refusal | None:
        if (pod.name, pod.run_uid) == (state.worker, state.run_uid):
            return None
        message = (
            f"pod {pod.namespace}/{pod.name} is not worker {state.worker} of run {state.run}: this "
            "operator did not create it for that worker"
        )
        return Refusal(status=403, message=message)

    return AuthenticatedCaller(
        name=pod.uid,
        share=pod.run_uid,
        worker=(pod.run_uid, pod.name),
        objection=objection,
    )


def _not_ours(pod: PodFact) -> Refusal:
    message = (
        f"pod {pod.namespace}/{pod.name} is not a worker of a run: this operator did not create it"
    )
    return Refusal(status=403, message=message)


class _Reviews:
    """The API server's reviews of tokens, cached for a while."""

    def __init__(self, review: Review, clock: Callable[[], float]) -> None:
        self._review = review
        self._clock = clock
        self._turns = ConnectionLimiter(at_once=REVIEWS, share=1)
        self._good: dict[str, dict[str, float]] = {}
        """By the pod's uid: digests of its tokens, and when each was reviewed."""
        self._refused: dict[str, float] = {}
        """Digests of refused tokens, and who presented them, with the time of the refusal."""

    async def refusal(self, token: str, claims: PodIdentity, address: str) -> Refusal | None:
        """Why this token does not belong to the pod that it claims; None: it does."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        if self._is_trusted(claims, digest):
            return None
        presented_by = f"{address} {claims.pod_uid}"
        async with self._turns.of(presented_by):
            if self._is_trusted(claims, digest):  # reviewed while this request waited
                return None
            if self._was_refused(digest, REFUSED_FOR):
                return _not_accepted(claims)
            if self._was_refused(presented_by, PAUSE):
                message = "another token of this pod was refused a moment ago; retry"
                return Refusal(status=503, message=message)
            return await self._reviewed(token, digest, claims, presented_by)

    async def _reviewed(
        self, token: str, digest: str, claims: PodIdentity, presented_by: str
    ) -> Refusal | None:
        good = self._good.get(claims.pod_uid, {})
        try:
            identity = await self._review(token)
        except KubeError as error:
            if digest in good:
                return None  # our trouble must not silence an authenticated agent
            return Refusal(status=503, message=f"the token cannot be checked now: {error}")
        if identity != claims:
            good.pop(digest, None)
            for key in (digest, presented_by):
                _remember(self._refused, key, self._clock(), most=REMEMBERED_REFUSALS)
            return _not_accepted(claims)
        _remember(good, digest, self._clock(), most=TOKENS)
        _remember(self._good, claims.pod_uid, good, most=REMEMBERED_PODS)
        return None

    def _is_trusted(self, claims: PodIdentity, digest: str) -> bool:
        reviewed = self._good.get(claims.pod_uid, {}).get(digest)
        return reviewed is not None and self._clock() - reviewed < TRUSTED_FOR

    def _was_refused(self, key: str, seconds: float) -> bool:
        refused = self._refused.get(key)
        return refused is not None and self._clock() - refused < seconds


def _not_accepted(claims: PodIdentity) -> Refusal:
    pod = f"{claims.namespace}/{claims.pod}"
    return Refusal(status=401, message=f"the API server does not accept the token of pod {pod}")


def _remember(entries: dict[str, T], key: str, value: T, *, most: int) -> None:
    """Store it as the newest entry; beyond `most` drop the oldest."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]


async def review(api: KubeApi, token: str, audience: str) -> PodIdentity | None:
    """The pod that this token belongs to; None: it is invalid, not for us, or not a pod's.

    Raises KubeError when the API server cannot review it.
    """
    answer = await api.post(
        _PATH,
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        },
        # It changes nothing, and agents must not wait while a gang's pods are created.
        urgent=True,
    )
    status = answer.get("status", {})
    # An API server without audiences accepts any token, but then it does not list our audience.
    if not status.get("authenticated") or audience not in status.get("audiences", ()):
        return None
    user = status.get("user", {})
    extra = {key: values[0] for key, values in user.get("extra", {}).items() if values}
    name, pod, uid = user.get("username", ""), f"{_EXTRA}pod-name", f"{_EXTRA}pod-uid"
    if not name.startswith(_USER) or pod not in extra or uid not in extra:
        return None
    return PodIdentity(
        namespace=name.removeprefix(_USER).partition(":")[0],
        pod=extra[pod],
        pod_uid=extra[uid],
    )
