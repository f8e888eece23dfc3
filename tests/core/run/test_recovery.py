"""The parts of a recovery: each second of it is in one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.run.test_story import a_life
from tests.support.builders import WorkerObservation
from trainrun_operator.api.run.status_parts import Incident, Learned
from trainrun_operator.core.run.times import STAGES


def last(scene: WorkerObservation) -> Incident:
    return scene.plan.status.incidents[-1]


def lost(**config: object) -> WorkerObservation:
    """An attempt that has just been given up."""
    scene = a_life(max_failures=3, **config).after(passed=30)
    scene = scene.with_all(phase="Running", spawned=29.0, first_step=20.0, stepped=1.0, steps=(40,))
    scene = scene.after(scene.plan).with_exit(1, exception="ValueError: bad", age=0.5)
    return scene.after(scene.plan)


def restarted() -> WorkerObservation:
    """The next attempt has been started: 2 s of stopping, 3 s of flushing, 1 s for the store."""
    scene = lost().after()
    scene = scene.after(passed=2).with_all(phase="Flushing")
    scene = scene.after(passed=3).with_all(phase="Idle")
    scene = scene.after(passed=1).waiting().resolved((1, 30))
    scene = scene.after(scene.plan)
    return scene.with_all(attempt=2, phase="Running", exits=(), steps=(None,))


def stepping(scene: WorkerObservation, **fields: object) -> WorkerObservation:
    """Ten seconds after the start its processes, started after one, make a step."""
    fields = {"spawned": 9.0, "first_step": 0.5, **fields}
    return scene.after(scene.plan, passed=10).with_all(**fields)


def test_what_is_known_at_the_start_is_written_then() -> None:
    incident = last(restarted())
    assert incident.restart_seconds == 6.0
    assert incident.stages == {"detect": 0.5, "stop": 2.0, "flush": 3.0, "load": 1.0}


def test_with_the_first_step_the_parts_sum_to_the_recovery() -> None:
    found = last(stepping(restarted(), imports=5.0, rendezvous=6.0, load=2.0, warm=1))
    assert found.recovery_seconds == 15.5
    assert found.stages == {
        "detect": 0.5,
        "stop": 2.0,
        "flush": 3.0,
        "start": 1.0,
        "import": 5.0,
        "rendezvous": 1.0,
        "load": 3.0,
        "firstStep": 0.5,
    }
    assert list(found.stages) == [name for name in STAGES if name in found.stages]
    assert sum(found.stages.values()) == pytest.approx(15.5 + 0.5)
    assert found.warm == 2


def test_what_a_script_does_once_is_what_is_longer_than_any_step_before() -> None:
    scene = restarted()
    learned = scene.after(scene.plan).with_status(learned=Learned(slowest=0.3, trained=60.0))
    told = {"imports": 2.0, "rendezvous": 2.5, "load": 1.0}
    stages = last(stepping(learned, **told)).stages
    assert (stages["script"], stages["firstStep"]) == (4.7, 0.3)
    assert sum(stages.values()) == pytest.approx(16.0)
    slow = learned.with_status(learned=Learned(slowest=8.0, trained=60.0))
    stages = last(stepping(slow, **told)).stages
    assert "script" not in stages
    assert stages["firstStep"] == 5.0


def test_why_a_process_began_cold_stands_beside_the_parts() -> None:
    why = "rank 1: it has no standby yet"
    scene = stepping(restarted(), warm=1)
    assert last(scene).cold == ""
    assert last(scene.with_agent(1, warm=0, cold=why)).cold == why


def test_a_script_that_asks_for_no_checkpoint_has_no_rendezvous() -> None:
    stages = last(stepping(restarted(), imports=5.0)).stages
    assert (stages["import"], stages["firstStep"]) == (5.0, 3.5)
    assert "rendezvous" not in stages


def test_what_agents_say_is_never_longer_than_what_has_passed() -> None:
    stages = last(stepping(restarted(), imports=1e6, rendezvous=1e6, load=1e6)).stages
    assert sum(stages.values()) == pytest.approx(16.0)
    assert "firstStep" not in stages


def test_an_agent_that_does_not_say_when_it_started_leaves_that_to_the_start() -> None:
    stages = last(stepping(restarted(), spawned=None)).stages
    assert stages["start"] == 9.5


def test_a_backoff_is_a_part_of_deciding_and_reading_the_store_one_of_loading() -> None:
    scene = lost()
    before = scene.status.chapter
    assert before is not None
    waits = {"BackingOff": 4.0, "Resolving": 2.0, "ImagePull": 3.0}
    scene = scene.with_status(chapter=replace(before, waits=waits, since=None))
    scene = scene.after(scene.plan, passed=9).with_all(phase="Idle").waiting().resolved((1, 30))
    scene = scene.with_status(chapter=replace(before, waits=waits, since=None))
    assert last(scene).stages == {"detect": 0.5, "decide": 4.0, "pods": 3.0, "load": 2.0}


def test_waits_that_another_clock_has_told_are_never_longer_than_the_restart() -> None:
    scene = lost()
    before = scene.status.chapter
    assert before is not None
    scene = scene.with_status(chapter=replace(before, waits={"Flushing": 100.0}))
    scene = scene.after(scene.plan, passed=2).with_all(phase="Idle").waiting().resolved((1, 30))
    stages = last(scene).stages
    assert sum(stages.values()) == pytest.approx(2.5)


def test_a_run_without_a_story_tells_no_parts() -> None:
    scene = lost().after(passed=2).with_all(phase="Idle").waiting().resolved((1, 30))
    scene = scene.with_status(chapter=None)
    assert last(scene).stages == {}
    scene = scene.after(scene.plan).with_all(attempt=2, phase="Running", exits=(), steps=(None,))
    found = last(stepping(scene))
    assert found.recovery_seconds is not None
    assert found.stages == {}


def test_only_the_last_incident_has_its_parts() -> None:
    scene = stepping(restarted(), imports=5.0, cold="rank 0: it has no standby yet")
    scene = scene.after(scene.plan, passed=5).with_all(phase="Running", steps=(50,))
    scene = scene.after(scene.plan).with_exit(0, exception="ValueError: bad", age=0.5)
    scene = scene.after(scene.plan).after(passed=2).with_all(phase="Idle")
    scene = scene.waiting().resolved((2, 50))
    first, second = scene.plan.status.incidents
    assert (first.stages, first.cold) == ({}, "")
    assert first.recovery_seconds == 15.5
    assert second.stages


# ---------------------------------------------------------------- what would make it shorter

IMPORTS = {"imports": 6.06, "rendezvous": 6.5, "import_bytes": 390_400_000}


def advised(**fields: object) -> WorkerObservation:
    return stepping(restarted(), **{**IMPORTS, **fields})


def test_a_recovery_that_consists_of_imports_leads_to_advice_with_numbers() -> None:
    plan = advised().plan
    text = (
        "imports were 6.1 of the 16.0 s of a recovery: workers.warmStart would save most of it and "
        "cost about 390 MB of memory per rank (docs/warm-start.md)"
    )
    assert plan.status.advice == text
    assert plan.transition
    assert [(e.type, e.reason, e.message) for e in plan.events] == [
        ("Normal", "ImportsDominate", text)
    ]


def test_the_advice_is_told_once_and_kept() -> None:
    scene = advised()
    before = scene.plan.status.advice
    scene = scene.after(scene.plan, passed=5).with_all(import_bytes=500_000_000)
    assert scene.plan.events == ()
    assert scene.plan.status.advice == before
    scene = scene.after(scene.plan).with_exit(1, exception="ValueError: bad", age=0.5)
    told = scene.plan
    assert told.status.advice == before
    assert "ImportsDominate" not in [event.reason for event in told.events]


def test_a_library_that_does_not_say_what_imports_take_leaves_the_number_out() -> None:
    told = advised(import_bytes=0).plan.status.advice
    assert "save most of it and cost the memory of what is imported per rank" in told


@pytest.mark.parametrize(
    "imports",
    [1.9, 4.7],  # in all: 16 s
)
def test_imports_that_are_a_small_part_are_worth_no_advice(imports: float) -> None:
    plan = advised(imports=imports).plan
    assert plan.status.incidents[-1].recovery_seconds is not None
    assert (plan.status.advice, plan.events) == ("", ())


def test_a_run_with_a_warm_start_gets_no_advice_and_loses_what_it_had() -> None:
    scene = advised()
    warm = scene.after(scene.plan).with_config(keeps_standbys=True)
    assert warm.status.advice
    assert warm.plan.status.advice == ""


def test_the_memory_of_the_largest_standby_is_shown_and_kept_while_nobody_tells_it() -> None:
    scene = restarted()
    assert stepping(scene, standby_bytes=454_000_000).plan.status.workers.standby_memory == ""
    warm = scene.after(scene.plan).with_config(keeps_standbys=True)
    assert warm.with_all(standby_bytes=0).plan.status.workers.standby_memory == ""
    warm = warm.with_agent(0, standby_bytes=454_000_000).with_agent(1, standby_bytes=400_000_000)
    assert warm.plan.status.workers.standby_memory == "432Mi"
    later = warm.after(warm.plan).with_all(standby_bytes=0)
    assert later.plan.status.workers.standby_memory == "432Mi"
