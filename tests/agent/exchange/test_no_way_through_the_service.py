"""The Service leads nowhere, or to one that leads no more: agents find the leader all the same."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import start
from tests.support.certificates import TestAuthority
from tests.support.eventually import eventually
from tests.support.operator_stand_in import OperatorStandIn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agent.workers import Workers

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def another() -> Iterator[OperatorStandIn]:
    with OperatorStandIn() as stand_in:
        yield stand_in


@pytest.mark.case("operator", "A node's kube-proxy does not know the next leader")
@pytest.mark.slow
def test_a_worker_whose_service_leads_to_the_leader_before_is_heard_by_the_next(
    operator: OperatorStandIn, another: OperatorStandIn, workers: Workers
) -> None:
    """Its node's kube-proxy does not learn of the next leader."""
    operator.operators = (operator.place, another.place)
    worker = workers.start("import time; time.sleep(600)")
    operator.order(start())
    operator.until(lambda s: s.phase == "Running")
    another.order(start())
    operator.status = 503
    assert another.until(lambda s: s.phase == "Running").attempt == 1
    assert worker.output.count("starting attempt") == 1


@pytest.mark.slow
def test_a_worker_whose_service_leads_nowhere_is_heard_when_its_leader_dies(
    another: OperatorStandIn, workers: Workers
) -> None:
    with OperatorStandIn() as first:
        first.operators = (first.place, another.place)
        worker = workers.start("pass", operator_url=first.url)
        first.until(lambda s: s.seen)
        first.status = 500
        another.until(lambda s: True)
    worker.shows(f"the operator answers again at {another.place}")
    requests = another.requests
    eventually(lambda: another.requests > requests, what="it stays there")


def test_a_new_worker_is_heard_though_the_service_leads_nowhere(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("pass", operator_url=NOWHERE, operators=("127.0.0.1:9", operator.place))
    operator.until(lambda s: True)
    worker.shows("the operator cannot be reached: 127.0.0.1:9: ")
    worker.shows(f"the operator answers again at {operator.place}")


def test_a_standby_says_who_leads(
    operator: OperatorStandIn, another: OperatorStandIn, workers: Workers
) -> None:
    another.status = 503
    another.operators = (operator.place, another.place)
    workers.start("pass", operator_url=NOWHERE, operators=(another.place,))
    operator.until(lambda s: True)
    assert another.requests > 0


@pytest.mark.slow
def test_a_service_that_swallows_everything_does_not_use_up_the_time_of_a_worker(
    operator: OperatorStandIn, workers: Workers
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        worker = workers.start("pass", operator_url=url, operators=("127.0.0.1:9",))
        worker.shows("127.0.0.1:9: ")
        assert "no connection within 5 s" in worker.output


def dead_place(closing: ExitStack) -> str:
    """Where nobody takes a call or refuses one, as at the address of a pod that died: its queue is
    full."""
    silent = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    closing.enter_context(socket.create_connection(silent.getsockname()))
    return f"127.0.0.1:{silent.getsockname()[1]}"


@pytest.mark.slow
def test_addresses_of_operators_that_died_cost_a_second_each(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """Three seconds each were more than a worker with a short timeout may be silent for."""
    with ExitStack() as closing:
        dead = [dead_place(closing) for _ in range(4)]
        worker = workers.start("pass", operator_url=NOWHERE, operators=(*dead, operator.place))
        operator.until(lambda s: True)
    for place in dead:
        worker.shows(f"{place}: no connection within 1 s")


def test_an_address_is_verified_against_the_name_of_the_service(
    workers: Workers, tmp_path: Path
) -> None:
    authority = TestAuthority()
    good, bad = (authority.server(tmp_path, host=host) for host in ("localhost", "127.0.0.1"))
    with OperatorStandIn(tls=good) as leader, OperatorStandIn(tls=bad) as stranger:
        worker = workers.start(
            "pass",
            ca=authority.pem,
            operator_url="https://localhost:9",
            operators=(stranger.place, leader.place),
        )
        leader.until(lambda s: True)
        worker.shows(f"{stranger.place}: its certificate is not trusted (Hostname mismatch")
        assert stranger.requests == 0


@pytest.mark.case("operator", "Workers cannot resolve the Service, and all operators are replaced")
@pytest.mark.slow
def test_a_host_network_worker_is_heard_when_all_operators_were_replaced(
    another: OperatorStandIn, workers: Workers
) -> None:
    """The name of the Service is not found on its node, and all operators have new addresses: what
    still leads to them is the address of the Service itself."""
    service = another.place
    with OperatorStandIn() as first:
        first.operators = (first.place, service)
        nameless = "http://trainrun-agents.trainrun-system.svc.invalid:8443"
        worker = workers.start("pass", operator_url=nameless, operators=(first.place,))
        first.until(lambda s: s.seen)
        first.status = 500
        another.until(lambda s: True)
    worker.shows(f"the operator answers again at {service}")
