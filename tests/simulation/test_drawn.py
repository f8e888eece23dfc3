"""The lives that are drawn reach what they are drawn for, and the judge looks at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.earlier import LAST, mistakes_about_it
from tests.simulation.holding import mistake_in
from tests.simulation.lives import Life, judged, living
from tests.simulation.one_run import causes
from tests.simulation.striking import Fault, FaultKind
from tests.simulation.world.simulation import Simulation
from trainrun_operator.core.run import answers


def a_life(*kinds: FaultKind, size: float = 0.5, **fields: Any) -> Life:
    """A quiet one of two workers, in which these things happen and nothing else."""
    faults = tuple(
        Fault(kind=kind, at=12.0 + 5 * n, slot=1, size=size) for n, kind in enumerate(kinds)
    )
    quiet: dict[str, Any] = {
        "replicas": 2, "processes": 1, "max_failures": 3, "max_preemptions": None,
        "max_start_failures": None, "no_progress_limit": 0, "window": None, "deadline": None,
        "ttl": None, "loss": 0.0, "duplicate": 0.0, "delay": 0.02, "rules": (), "together": True,
        "raised_after": None, "progress_timeout": None, "first_step_timeout": None,
        "on_existing": "Resume", "before": "Nothing", "hang_policy": "Observe",
    }  # fmt: skip
    return replace(drawn_life(1), faults=faults, **(quiet | fields))


def lived(life: Life) -> Simulation:
    world = living(life)
    assert judged(world) == []
    return world


def test_a_rank_that_stands_still_for_ever_is_charged_where_both_timeouts_are_set() -> None:
    world = lived(a_life("stand-still", progress_timeout=30.0, first_step_timeout=40.0))
    assert causes(world) == ["Hung"]
    assert (world.status.phase, world.status.failures.counted) == ("Succeeded", 1)


def test_a_rank_that_stands_still_for_a_while_is_left_alone_without_timeouts() -> None:
    world = lived(a_life("stand-still", size=1.0))
    assert (causes(world), world.status.phase) == ([], "Succeeded")
    assert world.clock.now > 24 + 60


@pytest.mark.slow
def test_a_rank_that_stands_still_for_ever_is_charged_where_the_policy_is_to_restart() -> None:
    world = lived(a_life("stand-still", hang_policy="Restart"))
    assert causes(world) == ["Hung"]
    assert (world.status.phase, world.status.failures.counted) == ("Succeeded", 1)


@pytest.mark.case(
    "decisions", "The script raises trainrun.FatalError", counted="maxFailures; the run fails"
)
def test_a_script_that_says_that_no_restart_makes_sense_ends_its_run() -> None:
    world = lived(a_life("fatal"))
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "FatalError"
    assert mistake_in(a_life("fatal")) == ""


@pytest.mark.case(
    "decisions", "The script raises trainrun.RetryError", counted="maxFailures after five in a row"
)
def test_a_script_that_asks_for_a_restart_is_not_charged() -> None:
    world = lived(a_life("retry"))
    assert [(i.cause, i.budget) for i in world.status.incidents] == [("RetryError", "none")]
    assert world.status.phase == "Succeeded"


@pytest.mark.case(
    "nodes",
    "A pod ends itself: a probe, a deadline, a limit, SIGTERM from inside",
    counted="maxFailures",
)
@pytest.mark.case(
    "nodes",
    "A node shuts down in order or evicts softly: the reason follows SIGTERM",
    counted="maxPreemptions",
)
@pytest.mark.parametrize(
    ("kind", "cause", "budget"),
    [
        ("node-short", "Evicted", "preemptions"),
        ("own-limit", "Terminated", "failures"),
        ("not-read", "StorageError", "failures"),
        ("interrupted", "Interrupted", "none"),
    ],
)
def test_what_is_rare_is_charged_once_as_what_it_is(
    kind: FaultKind, cause: str, budget: str
) -> None:
    world = lived(a_life(kind, max_preemptions=1))
    assert [(i.cause, i.budget) for i in world.status.incidents] == [(cause, budget)]
    assert world.status.phase == "Succeeded"


def test_what_a_script_says_and_nobody_heeds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainrun_operator.core.run.incidents import ledger

    monkeypatch.setattr(ledger, "decided", lambda incident, _: replace(incident, action=""))
    assert "decides nothing about attempt 1, not no rule FailRun" in mistake_in(a_life("fatal"))


ENDS: dict[tuple[str, str], Callable[[Simulation], bool]] = {
    ("Resume", "Unfinished"): lambda world: world.judge.claims[4][1] == LAST,
    ("Resume", "Finished"): lambda world: not world.judge.claims,
    ("StartFresh", "Finished"): lambda world: world.judge.claims[1][1] is None,
    ("StartFresh", "Unfinished"): lambda world: world.status.storage_generation == 2,
    ("Fail", "Unfinished"): lambda world: world.status.reason == "StorageNotEmpty",
    ("Fail", "Nothing"): lambda world: world.status.phase == "Succeeded",
}


@pytest.mark.slow
@pytest.mark.case("storage", "A run with onExisting: StartFresh finds a used folder")
@pytest.mark.parametrize(("asked", "before"), ENDS)
def test_a_storage_that_was_used_is_taken_as_the_spec_says(asked: str, before: str) -> None:
    life = a_life("exception", on_existing=asked, before=before)
    assert mistake_in(life) == ""
    assert ENDS[asked, before](lived(life))


@pytest.mark.parametrize(
    ("asked", "before", "mistake"),
    [
        ("Fail", "Unfinished", "onExisting is Fail, and attempt 4 has begun in a used storage"),
        ("StartFresh", "Unfinished", "onExisting is StartFresh, and attempts [4] resume from"),
    ],
)
def test_a_storage_that_is_taken_otherwise_is_noticed(
    asked: str, before: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_on_existing", lambda _view: "Resume")
    assert mistake in mistake_in(a_life(on_existing=asked, before=before))


def test_a_used_storage_that_is_left_aside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_on_existing", lambda _view: "StartFresh")
    world = living(a_life(before="Unfinished"))
    judged(world)
    assert "the first attempt starts from None" in next(mistakes_about_it(world, "Unfinished"))
    trained = living(a_life(before="Finished"))
    judged(trained)
    assert "and attempt 1 trains again" in next(mistakes_about_it(trained, "Finished"))
