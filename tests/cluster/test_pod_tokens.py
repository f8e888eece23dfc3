from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.kube.waiting import until
from tests.runtime.states import a_state
from trainrun_operator.cluster.pod_tokens import (
    EXPIRED,
    PAUSE,
    REFUSED_FOR,
    REMEMBERED_REFUSALS,
    REVIEWS,
    TRUSTED_FOR,
    PodIdentity,
    pod_tokens,
)
from trainrun_operator.kube.errors import Unavailable
from trainrun_operator.runtime.agent_server import AuthenticatedCaller, Authenticator, Refusal
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact, is_ours, signature_of

KEY = b"only the operator has it"
STATE = replace(a_state(), run_uid="run-uid", worker="run-0-1")
IDENTITY = PodIdentity(namespace="team", pod="run-0-1", pod_uid="pod-uid")
SEAL = signature_of(
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
    signature=SEAL,
    created=datetime(2026, 1, 1, tzinfo=UTC),
)


AUDIENCE = "trainrun-agents"
ADDRESS = "10.1.2.3"


def a_token(*, nonce: str = "", **changes: Any) -> str:
    """A token that claims to be the worker's, signed by nobody; `nonce` makes it another one."""
    pod = {"name": IDENTITY.pod, "uid": IDENTITY.pod_uid} | changes.pop("pod", {})
    payload = {
        "aud": [AUDIENCE],
        "exp": 1_000_000,
        "kubernetes.io": {"namespace": IDENTITY.namespace, "pod": pod},
        "nonce": nonce,
    }
    text = json.dumps(payload | changes).encode()
    return f"e30.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.c2ln"


TOKEN = a_token()


@dataclass
class Cluster:
    """What the API server and our cache of pods say."""

    identity: PodIdentity | None = IDENTITY
    pod: PodFact | None = POD
    away: bool = False
    genuine: set[str] = field(default_factory=set)
    """Tokens that are the pod's; empty: all are."""
    reviews: list[str] = field(default_factory=list)
    reviewing: int = 0
    most_reviewing: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.gate.set()

    def authenticator(self) -> Authenticator:
        async def review(token: str) -> PodIdentity | None:
            self.reviews.append(token)
            self.reviewing += 1
            self.most_reviewing = max(self.most_reviewing, self.reviewing)
            await self.gate.wait()
            self.reviewing -= 1
            if self.away:
                raise Unavailable("no answer")
            return self.identity if not self.genuine or token in self.genuine else None

        return pod_tokens(
            review=review,
            find=lambda namespace, name: self.pod,
            is_ours=lambda pod, uid: is_ours(pod, uid, KEY),
            clock=lambda: self.now,
            time_of_day=lambda: 0.0,
        )


def refused(found: AuthenticatedCaller | Refusal) -> tuple[int, str]:
    assert isinstance(found, Refusal)
    return found.status, found.message


async def accepted(authenticate: Authenticator, token: str = TOKEN, address: str = ADDRESS) -> bool:
    return isinstance(await authenticate(token, address), AuthenticatedCaller)


async def test_a_worker_speaks_for_itself_with_the_token_of_its_pod() -> None:
    speaker = await Cluster().authenticator()(TOKEN, ADDRESS)
    assert isinstance(speaker, AuthenticatedCaller)
    assert speaker.objection(STATE) is None
    assert (speaker.name, speaker.share) == ("pod-uid", "run-uid")


async def test_a_token_is_reviewed_once_however_often_it_is_shown() -> None:
    cluster, renewed = Cluster(), a_token(nonce="renewed")
    authenticate = cluster.authenticator()
    for _ in range(3):
        assert await accepted(authenticate)
    assert await accepted(authenticate, renewed)
    assert await accepted(authenticate)
    assert cluster.reviews == [TOKEN, renewed]


async def test_both_connections_of_an_agent_ask_for_one_review() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    cluster.gate.clear()
    both = [asyncio.create_task(accepted(authenticate)) for _ in range(2)]
    await until(lambda: cluster.reviewing)
    cluster.gate.set()
    assert await asyncio.gather(*both) == [True, True]
    assert cluster.reviews == [TOKEN]


async def test_a_good_token_that_a_starting_api_server_refused_is_soon_accepted() -> None:
    cluster = Cluster(identity=None)
    authenticate = cluster.authenticator()
    for _ in range(2):
        assert refused(await authenticate(TOKEN, ADDRESS)) == (
            401,
            "the API server does not accept the token of pod team/run-0-1",
        )
    assert len(cluster.reviews) == 1
    cluster.identity, cluster.now = IDENTITY, REFUSED_FOR
    assert await accepted(authenticate)


@pytest.mark.case("operator", "The API server cannot check a token")
async def test_a_worker_that_spoke_is_heard_on_while_tokens_cannot_be_checked() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    assert await accepted(authenticate)
    cluster.away, cluster.now = True, TRUSTED_FOR
    assert await accepted(authenticate)
    assert cluster.reviews == [TOKEN, TOKEN]


async def test_a_token_that_is_good_no_more_is_refused_once_it_is_reviewed_again() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    assert await accepted(authenticate)
    cluster.identity, cluster.now = None, TRUSTED_FOR
    assert not await accepted(authenticate)


async def test_an_agent_without_a_token_is_refused() -> None:
    assert refused(await Cluster().authenticator()("", ADDRESS)) == (
        401,
        "the request has no token",
    )


@pytest.mark.parametrize(
    "token",
    [
        "nonsense",
        "x" * 100_000,
        "a.b.c",
        "a.\udc80.c",
        f"e30.{'W1tb' * 1000}.c2ln",
        "e30.W10.c2ln",
        a_token(aud=["https://kubernetes.default.svc"]),
        a_token(aud="other"),
        a_token(exp=None),
        a_token(exp=-EXPIRED - 1),
        a_token(pod={"name": ""}),
        a_token(pod={"uid": None}),
        a_token(**{"kubernetes.io": {"namespace": "team"}}),
        a_token(**{"kubernetes.io": []}),
    ],
)
async def test_what_is_not_even_said_to_be_a_pods_token_costs_no_call(token: str) -> None:
    cluster = Cluster()
    assert refused(await cluster.authenticator()(token, ADDRESS)) == (
        401,
        "the token is not a pod's token for the audience trainrun-agents",
    )
    assert cluster.reviews == []


async def test_a_clock_that_is_hours_off_refuses_no_token() -> None:
    cluster = Cluster()
    assert await accepted(cluster.authenticator(), a_token(exp=-6 * 3600))


async def test_a_token_that_belongs_to_another_pod_than_it_claims_is_refused() -> None:
    cluster = Cluster(identity=replace(IDENTITY, pod_uid="another"))
    assert refused(await cluster.authenticator()(TOKEN, ADDRESS))[0] == 401


async def test_a_worker_cannot_speak_for_another_one() -> None:
    speaker = await Cluster().authenticator()(TOKEN, ADDRESS)
    assert isinstance(speaker, AuthenticatedCaller)
    for other in (replace(STATE, worker="run-1-1"), replace(STATE, run_uid="other")):
        refusal = speaker.objection(other)
        assert refusal is not None
        assert refusal.status == 403
        assert f"pod team/run-0-1 is not worker {other.worker} of run run" in refusal.message


async def test_a_pod_that_pretends_to_belong_to_the_run_is_refused() -> None:
    cluster = Cluster(pod=replace(POD, signature="0" * 64))
    assert refused(await cluster.authenticator()(TOKEN, ADDRESS)) == (
        403,
        "pod team/run-0-1 is not a worker of a run: this operator did not create it",
    )
    assert cluster.reviews == []


async def test_while_tokens_cannot_be_checked_agents_are_put_off_and_not_sent_away() -> None:
    assert refused(await Cluster(away=True).authenticator()(TOKEN, ADDRESS))[0] == 503


async def test_a_pod_that_the_cache_does_not_show_yet_is_put_off() -> None:
    for pod in (None, replace(POD, uid="an older pod of this name")):
        cluster = Cluster(pod=pod)
        assert refused(await cluster.authenticator()(TOKEN, ADDRESS)) == (
            503,
            "pod run-0-1 is not known yet",
        )
        assert cluster.reviews == []


async def test_forged_tokens_push_no_good_one_out() -> None:
    cluster = Cluster(genuine={TOKEN})
    authenticate = cluster.authenticator()
    assert await accepted(authenticate)
    for number in range(REMEMBERED_REFUSALS + 10):
        cluster.now += PAUSE / 100
        await authenticate(a_token(nonce=str(number)), "10.66.6.6")
    assert await accepted(authenticate)
    assert cluster.reviews.count(TOKEN) == 1


@pytest.mark.case("strangers", "A client shows one forged token after the other")
async def test_who_shows_one_forged_token_after_the_other_has_few_reviewed() -> None:
    cluster = Cluster(genuine={TOKEN})
    authenticate = cluster.authenticator()
    answers = [refused(await authenticate(a_token(nonce=str(n)), ADDRESS)) for n in range(50)]
    assert answers[0][0] == 401
    assert set(answers[1:]) == {(503, "another token of this pod was refused a moment ago; retry")}
    assert len(cluster.reviews) == 1
    assert await accepted(authenticate, address="10.1.2.4"), "the pod itself has another address"


async def test_reviews_have_slots_of_their_own_and_nobody_has_two() -> None:
    cluster = Cluster()
    authenticate = cluster.authenticator()
    cluster.gate.clear()
    shown = [
        asyncio.create_task(accepted(authenticate, a_token(nonce=nonce), f"10.1.2.{address}"))
        for address in range(REVIEWS + 4)
        for nonce in "abc"
    ]
    await until(lambda: cluster.reviewing == REVIEWS)
    cluster.gate.set()
    assert all(await asyncio.gather(*shown))
    assert cluster.most_reviewing == REVIEWS
