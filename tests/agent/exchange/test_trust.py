"""Whom an agent believes to be the operator, and how it shows who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, alive, start
from tests.support.certificates import TestAuthority
from tests.support.eventually import eventually
from tests.support.operator_stand_in import OperatorStandIn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def operator(tmp_path: Path, authority: TestAuthority) -> Iterator[OperatorStandIn]:
    with OperatorStandIn(tls=authority.server(tmp_path)) as stand_in:
        yield stand_in


def test_an_operator_whose_certificate_the_authority_signed_is_heard(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority
) -> None:
    worker = workers.start("print('hello')", ca=authority.pem)
    operator.order(start())
    operator.until(lambda s: s.exits)
    assert "hello" in worker.output


def test_an_operator_of_another_authority_is_not_and_that_is_told_once(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    other = TestAuthority(name="other")
    worker = workers.start("pass", ca=other.pem)
    worker.shows("its certificate is not trusted (unable to get local issuer certificate)")
    with OperatorStandIn(tls=other.server(tmp_path)) as good:
        good_too = workers.start("pass", ca=other.pem, slot=1, operator_url=good.url)
        good.until(lambda s: True, worker="run-1-1")
    assert good_too.process.poll() is None
    assert operator.requests == 0
    assert worker.process.poll() is None
    assert worker.output.count("is not trusted") == 1


def test_an_operator_with_a_certificate_for_another_name_is_not_heard(
    workers: Workers, authority: TestAuthority, tmp_path: Path
) -> None:
    with OperatorStandIn(tls=authority.server(tmp_path, host="elsewhere.svc")) as impostor:
        worker = workers.start("pass", ca=authority.pem, operator_url=impostor.url)
        worker.shows("its certificate is not trusted (IP address mismatch")
        assert impostor.requests == 0


def test_what_is_no_certificate_is_a_clear_error(workers: Workers) -> None:
    worker = workers.start("pass", ca="-----BEGIN nonsense")
    assert worker.code() == 2
    assert "the field ca holds no certificate in PEM form" in worker.output


@pytest.mark.slow
def test_a_token_that_was_renewed_is_sent_with_the_next_request(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    workers.start("pass", ca=authority.pem, token_file=str(token))
    eventually(lambda: operator.tokens == {"Bearer first"})
    token.write_text("second\n")
    eventually(lambda: operator.tokens == {"Bearer first", "Bearer second"})


def test_a_token_that_is_not_there_yet_is_waited_for(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    worker = workers.start("pass", ca=authority.pem, token_file=str(token))
    worker.shows(f"the token cannot be read from {token}: No such file or directory")
    token.write_text("late")
    eventually(lambda: operator.tokens == {"Bearer late"})
    worker.shows("the operator answers again")


@pytest.mark.slow
def test_a_token_that_is_refused_is_told_once_and_shown_again(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority
) -> None:
    operator.status = 401
    worker = workers.start("pass", ca=authority.pem, token="wrong")
    worker.shows("the operator does not accept this agent: not now")
    eventually(lambda: operator.requests > 2, timeout=30)
    assert worker.output.count("does not accept") == 1
    operator.status = 200
    worker.shows("the operator answers again")


@pytest.mark.slow
def test_a_worker_that_is_not_of_the_run_any_more_stops_its_processes_and_leaves(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority
) -> None:
    worker = workers.start(
        "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)", ca=authority.pem
    )
    operator.order(start())
    worker.shows("pid ")
    pid = int(worker.output.split("pid ")[1].split()[0])
    operator.status = 409
    assert worker.code(timeout=30) == 1
    assert not alive(pid)
    assert "this worker is no longer part of the run: not now" in worker.output
