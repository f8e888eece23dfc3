"""What the runs of a namespace have met on nodes, as their statuses tell it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cluster.office import Office, raw
from tests.support.builders import BEGIN, an_incident
from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.cluster.node_memory import MAX_STRIKES, RECORD_WITHIN, NodeMemory
from trainrun_operator.core.run.boundary import Event

NOW = BEGIN + timedelta(hours=1)


class Memory(NodeMemory):
    """One that keeps what it tells."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Event, datetime]] = []
        super().__init__(lambda node, event, time: self.told.append((node, event, time)))

    def see(
        self, run: str, *incidents: Incident, namespace: str = "team", leads: bool = True
    ) -> None:
        metadata = {"namespace": namespace, "name": run, "uid": f"uid of {run}"}
        status = TrainRunStatus(incidents=incidents)
        self.learn(metadata, status, now=NOW, leads=leads)

    def known(self, namespace: str = "team") -> list[tuple[str, str]]:
        return [(strike.run, strike.node) for strike in self.of(namespace)]


def on(node: str, *, minutes_ago: float = 1, **fields: Any) -> Incident:
    return an_incident(node=node, time=NOW - timedelta(minutes=minutes_ago), **fields)


def test_it_knows_the_incidents_of_every_run_of_a_namespace_until_the_run_is_gone() -> None:
    memory = Memory()
    memory.see("a", on("n1", minutes_ago=9), on("n2", minutes_ago=5))
    memory.see("b", on("n1", minutes_ago=7))
    memory.see("c", on("n1"), namespace="other")
    assert memory.known() == [("a", "n2"), ("b", "n1"), ("a", "n1")]
    memory.see("a", on("n2", minutes_ago=5), on("n3", minutes_ago=1))
    assert memory.known() == [("a", "n3"), ("a", "n2"), ("b", "n1")]
    memory.forget("uid of a")
    memory.forget("uid of nobody")
    assert memory.known() == [("b", "n1")]
    memory.see("b")
    assert memory.known() == []
    assert memory.known("other") == [("c", "n1")]


def test_only_the_newest_incidents_of_a_namespace_are_looked_at() -> None:
    memory = Memory()
    for number in range(MAX_STRIKES + 5):
        memory.see(f"run-{number}", on(f"n{number}", minutes_ago=number))
    assert len(memory.known()) == MAX_STRIKES
    assert ("run-0", "n0") in memory.known()


def test_a_status_that_tells_nothing_new_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.see("a", on("n1"))
    before = memory.of("team")
    memory.see("a", on("n1"))
    memory.see("without incidents")
    assert memory.of("team") is before


@pytest.mark.case("decisions", "Workers of several runs are lost on one node again and again")
def test_a_node_that_two_runs_speak_against_is_told_of_as_an_event_once() -> None:
    memory = Memory()
    memory.see("a", on("n7", minutes_ago=30))
    memory.see("b", on("n7"))
    memory.see("b", on("n7"))
    ((node, event, time),) = memory.told
    assert (node, time) == ("n7", NOW - timedelta(minutes=1))
    assert event == Event(
        type="Warning",
        reason="TrainRunIncidents",
        message="2 TrainRuns (a, b: AppError) of namespace team lost workers here within a "
        "day; their new workers avoid this node if there is room elsewhere. Check the node",
    )


def test_of_many_runs_some_are_named() -> None:
    memory = Memory()
    for number in range(7):
        memory.see(f"run-{number}", on("n7", minutes_ago=65 - 10 * number))
    assert memory.told[-1][1].message.startswith(
        "7 TrainRuns (run-0, run-1, run-2, run-3, run-4, ...: AppError)"
    )


def test_a_run_alone_speaks_up_where_the_same_failure_strikes_there_and_nowhere_else() -> None:
    memory = Memory()
    died = [on("n7", minutes_ago=9 - n, attempt=n, exit_code=139, rank=1) for n in range(1, 4)]
    memory.see("a", *died[:2])
    assert memory.told == []
    memory.see("a", *died)
    ((node, event, _),) = memory.told
    assert node == "n7"
    assert event.message == (
        "the same failure of TrainRun team/a (AppError) occurred 3 or more times here, and "
        "nowhere else; their new workers avoid this node if there is room elsewhere. Check the node"
    )


def test_who_does_not_lead_tells_nothing_and_nobody_tells_what_is_old() -> None:
    memory = Memory()
    memory.see("a", on("n7", minutes_ago=30), leads=False)
    memory.see("b", on("n7"), leads=False)
    old = RECORD_WITHIN.total_seconds() / 60
    memory.see("c", on("n7", minutes_ago=old + 1))
    assert memory.told == []


async def test_a_manager_remembers_what_the_statuses_of_its_runs_tell() -> None:
    office = Office()
    status = json_object(TrainRunStatus(incidents=(on("n7"),)))
    office.manager.seen({**raw(), "status": status})
    assert [s.node for s in office.manager.nodes.of("team")] == ["n7"]
    office.manager.seen({**raw(version=2), "status": {}})
    assert office.manager.nodes.of("team") == ()
    office.manager.seen({**raw(version=3), "status": status})
    office.manager.gone("uid-1")
    assert office.manager.nodes.of("team") == ()
