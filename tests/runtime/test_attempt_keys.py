"""Keys of attempts: by RFC 5869, told to agents alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.runtime.states import RUN_UID, a_state, hold, start
from trainrun.contract.answer import Answer, RunSettings
from trainrun.contract.staged_parts import NodeCertificate
from trainrun_operator.runtime.agents import RunAgents, attempt_key

SECRET = b"s" * 32


def test_a_key_is_derived_by_the_rfc() -> None:
    derive = HKDF(SHA256(), 32, salt=b"trainrun attempt key v1", info=b'["uid-1", 3]').derive
    assert attempt_key(SECRET, run_uid="uid-1", attempt=3) == derive(SECRET).hex()
    others = {attempt_key(SECRET, run_uid=uid, attempt=n) for uid in ("a", "b") for n in (1, 2)}
    assert len(others) == 4


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_agents_that_start_an_attempt_are_told_its_key_and_nobody_sees_it(secret: bytes) -> None:
    def nothing() -> None:
        pass

    agents = RunAgents(run_uid=RUN_UID, on_news=nothing, on_progress=nothing, secret=secret)
    agents.expect(["run-0-1"])
    agents.receive(a_state())

    def told(published: Answer) -> Answer:
        agents.publish({"run-0-1": published})
        answer = asyncio.run(agents.answer(a_state(), wait=0))
        assert answer is not None
        assert answer.digest == published.digest
        return answer

    key = attempt_key(secret, run_uid=RUN_UID, attempt=2) if secret else ""
    answer = told(start(2))
    assert answer.key == key
    assert Answer.from_json(answer.to_json()) == answer
    assert not key or key not in f"{answer}{answer!r}{answer.order}"
    assert told(hold(3)).key == ""


def test_only_agents_of_a_run_with_buddies_are_told_with_what_to_serve_other_nodes() -> None:
    certificate = NodeCertificate(name="uid-1", certificate="PEM", key="hidden")
    agents = RunAgents(run_uid=RUN_UID, on_news=lambda: None, on_progress=lambda: None)
    agents.secret, agents.certificate = SECRET, lambda: certificate
    agents.expect(["run-0-1"])
    agents.receive(a_state())

    def told(settings: RunSettings) -> NodeCertificate | None:
        agents.publish({"run-0-1": replace(start(2), settings=settings)})
        answer = asyncio.run(agents.answer(a_state(), wait=0))
        assert answer is not None
        assert "hidden" not in f"{answer}{answer!r}"
        return Answer.from_json(answer.to_json()).certificate

    assert told(RunSettings(buddy=True)) == certificate
    assert told(RunSettings()) is None
