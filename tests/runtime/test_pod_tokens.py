from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from tests.runtime.states import a_state
from trainrun_operator.runtime.agent_server import Authenticator
from trainrun_operator.runtime.pod_tokens import BELIEVED_FOR, DISBELIEVED_FOR, pod_tokens
from trainrun_operator.worlds.kubernetes.errors import Unavailable
from trainrun_operator.worlds.kubernetes.pods import PodFact
from trainrun_operator.worlds.kubernetes.seal import is_ours, seal_of
from trainrun_operator.worlds.kubernetes.token_review import PodIdentity

KEY = b"only the operator has it"
STATE = replace(a_state(), run_uid="run-uid", worker="run-0-1")
IDENTITY = PodIdentity(namespace="team", pod="run-0-1", pod_uid="pod-uid")
SEAL = seal_of(
    KEY,
    namespace="team",
    name="run-0-1",
    run_uid="run-uid",
    slot=0,
    creation=1,
    template_hash="t1",
)
POD = PodFact(
    namespace="team",
    name="run-0-1",
    uid="pod-uid",
    run_uid="run-uid",
    owner_uid="run-uid",
    slot=0,
    creation=1,
    template_hash="t1",
    seal=SEAL,
    created=datetime(2026, 1, 1, tzinfo=UTC),
)


@dataclass
class Cluster:
    """What the API server and our cache of pods say."""

    identity: PodIdentity | None = IDENTITY
    pod: PodFact | None = POD
    away: bool = False
    reviews: list[str] = field(default_factory=list)
    now: float = 0.0

    def authenticator(self) -> Authenticator:
        async def review(token: str) -> PodIdentity | None:
            self.reviews.append(token)
            if self.away:
                raise Unavailable("no answer")
            return self.identity

        return pod_tokens(
            review=review,
            find=lambda namespace, name: self.pod,
            is_ours=lambda pod, uid: is_ours(pod, uid, KEY),
            clock=lambda: self.now,
        )


async def test_a_worker_speaks_for_itself_with_the_token_of_its_pod() -> None:
    assert await Cluster().authenticator()("token", STATE) is None


async def test_a_token_is_reviewed_once_however_often_it_is_shown() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    for _ in range(3):
        await authenticate("token", STATE)
    await authenticate("renewed", STATE)
    assert cluster.reviews == ["token", "renewed"]


async def test_a_good_token_that_a_starting_api_server_refused_is_soon_accepted() -> None:
    cluster = Cluster(identity=None)
    authenticate = cluster.authenticator()
    assert await authenticate("token", STATE) is not None
    cluster.identity, cluster.now = IDENTITY, DISBELIEVED_FOR
    assert await authenticate("token", STATE) is None


async def test_a_worker_that_spoke_is_heard_on_while_tokens_cannot_be_checked() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    await authenticate("token", STATE)
    cluster.away, cluster.now = True, BELIEVED_FOR
    assert await authenticate("token", STATE) is None
    assert cluster.reviews == ["token", "token"]


async def test_an_agent_without_a_token_is_refused() -> None:
    refusal = await Cluster().authenticator()("", STATE)
    assert refusal is not None
    assert (refusal.status, refusal.message) == (401, "worker run-0-1 showed no token")


async def test_a_token_that_the_api_server_does_not_know_is_refused() -> None:
    refusal = await Cluster(identity=None).authenticator()("forged", STATE)
    assert refusal is not None
    assert refusal.status == 401
    assert "does not accept the token of worker run-0-1" in refusal.message


async def test_a_worker_cannot_speak_for_another_one() -> None:
    refusal = await Cluster().authenticator()("token", replace(STATE, worker="run-1-1"))
    assert refusal is not None
    assert refusal.status == 403
    assert "pod team/run-0-1 is not worker run-1-1" in refusal.message


async def test_a_pod_that_pretends_to_belong_to_the_run_is_refused() -> None:
    pretender = replace(POD, seal="0" * 64)
    refusal = await Cluster(pod=pretender).authenticator()("token", STATE)
    assert refusal is not None
    assert refusal.status == 403
    assert "was not created for it by this operator" in refusal.message


async def test_while_tokens_cannot_be_checked_agents_are_put_off_and_not_sent_away() -> None:
    refusal = await Cluster(away=True).authenticator()("token", STATE)
    assert refusal is not None
    assert refusal.status == 503


async def test_a_pod_that_the_cache_does_not_show_yet_is_put_off() -> None:
    for pod in (None, replace(POD, uid="an older pod of this name")):
        refusal = await Cluster(pod=pod).authenticator()("token", STATE)
        assert refusal is not None
        assert refusal.status == 503
