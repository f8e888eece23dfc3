from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import aiohttp

from tests.runtime.states import a_state
from trainrun_operator.core.plan import Event
from trainrun_operator.runtime.agent_server import AgentServer, shared_token
from trainrun_operator.runtime.manager import RunManager
from trainrun_operator.runtime.metrics import Metrics


def raw(name: str = "run", *, uid: str = "uid-1", version: int = 1, **spec: Any) -> dict[str, Any]:
    """A TrainRun as it stands in a list: without apiVersion and kind."""
    container = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "generation": version,
            "resourceVersion": str(version),
        },
        "spec": {
            "workers": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            "storage": {"uri": "s3://bucket/runs"},
            **spec,
        },
    }


class Office:
    """A manager that does not lead, and what it recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.server = AgentServer(authenticate=shared_token("token"))
        self.manager = RunManager(server=self.server, metrics=Metrics(), record=self._record)

    def _record(self, _raw: Mapping[str, Any], event: Event, _time: datetime) -> None:
        self.events.append(event)

    def max_failures(self) -> list[int]:
        return [config.max_failures for _, config in self.manager.states()]

    async def status_for(self, uid: str) -> int:
        """What the agent of a worker of this run is answered."""
        port = await self.server.start("127.0.0.1")
        state = replace(a_state(), run_uid=uid)
        try:
            async with (
                aiohttp.ClientSession(headers={"Authorization": "Bearer token"}) as session,
                session.post(
                    f"http://127.0.0.1:{port}/v1/heartbeat", data=state.to_json()
                ) as response,
            ):
                return response.status
        finally:
            await self.server.stop()


def test_a_run_is_known_once_it_was_seen_and_forgotten_when_it_is_deleted() -> None:
    office = Office()
    office.manager.seen(raw())
    assert office.manager.uids() == {"uid-1"}
    office.manager.gone("uid-1")
    assert office.manager.uids() == frozenset()


def test_an_older_version_never_replaces_a_newer_one() -> None:
    office = Office()
    office.manager.seen(raw(version=7, failurePolicy={"maxFailures": 7}))
    office.manager.seen(raw(version=3, failurePolicy={"maxFailures": 3}))
    assert office.max_failures() == [7]


def test_a_run_that_is_being_deleted_is_left_alone() -> None:
    office = Office()
    office.manager.seen(raw())
    leaving = raw(version=2)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    office.manager.seen(leaving)
    assert office.manager.uids() == frozenset()


def test_a_deletion_that_the_watch_lost_is_found_by_the_next_list() -> None:
    office = Office()
    office.manager.seen(raw("a", uid="a"))
    office.manager.seen(raw("b", uid="b"))
    office.manager.relisted({"b": raw("b", uid="b")}, known_before=office.manager.uids())
    assert office.manager.uids() == {"b"}


def test_a_run_that_was_created_while_the_list_was_read_is_not_taken_for_deleted() -> None:
    office = Office()
    known = office.manager.uids()
    office.manager.seen(raw("new", uid="new"))
    office.manager.relisted({}, known_before=known)
    assert office.manager.uids() == {"new"}


def test_a_spec_that_cannot_be_read_is_told_once_per_generation() -> None:
    office = Office()
    broken = raw(failurePolicy={"maxFailures": "many"})
    for _ in range(3):
        office.manager.seen(broken)
    assert [event.reason for event in office.events] == ["InvalidSpec"]
    assert "spec.failurePolicy.maxFailures" in office.events[0].message
    office.manager.seen(raw(version=2, failurePolicy={"maxFailures": "few"}))
    assert len(office.events) == 2


async def test_agents_of_a_run_that_this_operator_cannot_read_are_put_off_not_sent_away() -> None:
    office = Office()
    office.manager.seen(raw(failurePolicy={"maxFailures": "many"}))
    assert await office.status_for("uid-1") == 503


async def test_agents_of_a_run_that_is_gone_are_sent_away() -> None:
    office = Office()
    office.manager.seen(raw(failurePolicy={"maxFailures": "many"}))
    office.manager.gone("uid-1")
    assert await office.status_for("uid-1") == 410


def test_a_spec_that_was_repaired_is_led_like_any_other() -> None:
    office = Office()
    office.manager.seen(raw(failurePolicy={"maxFailures": "many"}))
    office.manager.seen(raw(version=2, failurePolicy={"maxFailures": 2}))
    assert office.max_failures() == [2]
