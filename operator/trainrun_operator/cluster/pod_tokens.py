"""Who may speak for a worker in a cluster: the pod itself, with its own token.

Layer: cluster. A token is believed when the API server says that it belongs to a pod, which it
checks to be still there, for our audience; the pod must be one that we created for the run, and
speaks for itself alone. Invariants: the API server is asked only about tokens that claim to be
those of a pod of ours, for which alone such a claim is good; what strangers show neither pushes out
what is known of good tokens nor keeps others from having theirs reviewed.
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
"""Seconds after its end until a token is not even shown to the API server: that one judges by its
own clock, and ours may be wrong."""
TRUSTED_FOR = 900.0
"""Seconds until a token is reviewed again: a deleted pod is refused at once by our own cache; a
service account that was removed is noticed so much later. With 2,000 agents that is a review in
half a second."""
REFUSED_FOR = 5.0
"""Seconds until a token is reviewed again that was refused: an API server that has just been
started, or has not yet heard of a new pod, refuses good ones."""
PAUSE = 1.0
"""Seconds after such a refusal in which no other token from the same address for the same pod is
reviewed."""
REVIEWS = 8
"""At a time, beside all other calls to the API server."""
REMEMBERED_PODS, REMEMBERED_REFUSALS = 20_000, 2_000
TOKENS = 2
"""Good ones kept of a pod: the kubelet renews them, and for a moment both are shown."""

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_EXTRA = "authentication.kubernetes.io/"
_USER = "system:serviceaccount:"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """The pod that a token speaks for, or claims to speak for."""

    namespace: str
    pod: str
    pod_uid: str


Review = Callable[[str], Awaitable[PodIdentity | None]]
FindPod = Callable[[str, str], PodFact | None]
IsOurs = Callable[[PodFact, str], bool]


def claims_of(token: str, *, audience: str, now: float) -> PodIdentity | None:
    """Which pod's token it claims to be; None: this is no token of a pod for this audience, or one
    that has ended long ago.

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
            return Refusal(status=401, message="no token was shown")
        claims = claims_of(token, audience=AUDIENCE, now=time_of_day())
        if claims is None:
            message = f"this is no token of a pod for the audience {AUDIENCE}"
            return Refusal(status=401, message=message)
        pod = find(claims.namespace, claims.pod)
        if pod is None or pod.uid != claims.pod_uid:
            # Our cache may be a moment behind a pod that has just been created.
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
            f"pod {pod.namespace}/{pod.name} is not worker {state.worker} of run {state.run}: it "
            "was not created for it by this operator"
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
        f"pod {pod.namespace}/{pod.name} is no worker of a run: it was not created for it by this "
        "operator"
    )
    return Refusal(status=403, message=message)


class _Reviews:
    """What the API server says of tokens, remembered for a while."""

    def __init__(self, review: Review, clock: Callable[[], float]) -> None:
        self._review = review
        self._clock = clock
        self._turns = ConnectionLimiter(at_once=REVIEWS, share=1)
        self._good: dict[str, dict[str, float]] = {}
        """By the pod's uid: digests of its tokens, and when each was reviewed."""
        self._refused: dict[str, float] = {}
        """Digests of tokens, and who has shown one of late, with the time of the refusal."""

    async def refusal(self, token: str, claims: PodIdentity, address: str) -> Refusal | None:
        """Why this token is not the one that it claims to be; None: it is."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        if self._is_trusted(claims, digest):
            return None
        presented_by = f"{address} {claims.pod_uid}"
        async with self._turns.of(presented_by):
            if self._is_trusted(claims, digest):  # reviewed while this one waited
                return None
            if self._was_refused(digest, REFUSED_FOR):
                return _not_accepted(claims)
            if self._was_refused(presented_by, PAUSE):
                message = "another token of this pod was refused a moment ago; ask again"
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
                return None  # who spoke all the time must not fall silent by our trouble
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
    """Keep it as the newest; beyond `most` the oldest is forgotten."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]


async def review(api: KubeApi, token: str, audience: str) -> PodIdentity | None:
    """The pod that this token belongs to; None: it is not valid, not for us, or no pod's.

    Raises KubeError when nobody could tell.
    """
    answer = await api.post(
        _PATH,
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        },
        # It changes nothing, and agents must not wait for a gang whose pods are being created.
        urgent=True,
    )
    status = answer.get("status", {})
    # An API server that knows no audiences accepts tokens for any: it does not name ours then.
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
