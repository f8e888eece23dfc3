"""What `trainrun explain` advises, and where it had better say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cli.stories import a_life, an_incident
from trainrun.checkpoint.inspection import CheckpointInfo
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.explaining.advice import SavingFigures, advice, saving
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.report.model import Advice


def told(life: Life, kind: str) -> list[Advice]:
    return [it for it in advice(life) if it.kind == kind]


def a_run(*chapters: Chapter) -> Life:
    return Life(name="llama", uri="file:///runs/llama", chapters=chapters)


def with_incidents(*incidents: dict[str, Any]) -> Life:
    """Attempts of 8 workers that ended so."""
    _, _, failed, _ = a_life()
    return a_run(*(replace(failed, incident=incident) for incident in incidents))


def an_error(node: str, **fields: Any) -> dict[str, Any]:
    return an_incident(node=node, worker="llama-0-1", raisedAt="train.py:12", **fields)


def figures(*, interval: float, between_failures: float, best: float) -> SavingFigures:
    return SavingFigures(
        step=0.02, interval=interval, between_failures=between_failures, stall=1.0, best=best
    )


def test_an_interval_was_called_best_that_loses_404_percent_instead_of_122() -> None:
    fast = figures(interval=0.023, between_failures=0.047, best=0.306)
    assert not fast.improves
    assert fast.loss(fast.interval) == fast.loss(fast.best) == 1.0


@pytest.mark.parametrize(
    ("found", "improves"),
    [
        (figures(interval=600, between_failures=3600, best=85), True),
        (figures(interval=5, between_failures=3600, best=85), True),
        (figures(interval=80, between_failures=3600, best=600), False),  # steps are that long
        (figures(interval=600, between_failures=1.5, best=1.7), False),
    ],
)
def test_an_interval_is_best_where_it_costs_less_and_failures_are_rarer(
    found: SavingFigures, improves: bool
) -> None:
    assert found.improves is improves


def test_a_run_that_fails_every_50_ms_is_not_told_how_often_to_save() -> None:
    _, first, second, _ = a_life()
    quick = {"useful": 0.02, "rework": 0.03, "checkpoint_stall": 0.1}
    life = a_run(replace(first, spent=quick), replace(second, spent=quick))
    assert saving(life) is not None
    assert told(life, "CheckpointInterval") == []


def test_what_a_save_was_measured_to_cost_decides_how_often_to_save() -> None:
    _, first, second, _ = a_life()
    dear, cheap = (
        saving(
            a_run(*(replace(it, spent={"useful": 600.0}, save_seconds=s) for it in (first, second)))
        )
        for s in (4.0, 0.04)
    )
    assert dear is not None
    assert cheap is not None
    assert (dear.stall, cheap.stall) == (4.0, 0.04)
    assert cheap.best == pytest.approx(dear.best / 10)


def test_a_run_whose_saves_are_cheap_is_told_what_more_of_them_gain() -> None:
    _, first, second, _ = a_life()
    spent = {"useful": 600.0, "rework": 60.0}
    life = a_run(*(replace(it, spent=spent, save_seconds=0.03) for it in (first, second)))
    (given,) = told(life, "CheckpointInterval")
    assert given.text == (
        "saving every 542 s cost 9 % rework; every 6.3 s (15 steps) costs 0.5 %, at 30 ms a save, "
        "and a failure loses 3.1 s of work: with a failure every 11 min of training that gains "
        "40.1 % goodput (T = sqrt(2 x cost of a save x time between failures): Young 1974, Daly "
        "2006)"
    )


def test_saves_that_are_seldom_uploaded_were_taken_for_seldom_saves() -> None:
    """Of a run that saves every 2 s and uploads every 5 minutes."""
    _, first, second, _ = a_life()
    spent = {"useful": 600.0, "rework": 12.0}
    ran = [
        replace(it, spent=spent, reached=6000, resumed_from=None, saves=300, save_seconds=0.01)
        for it in (first, second)
    ]
    stored = [
        CheckpointInfo(id=CheckpointId(attempt=1, step=step), state="good") for step in (3000, 6000)
    ]
    life = replace(a_run(*ran), checkpoints=tuple(stored))
    found = saving(life)
    assert found is not None
    assert found.interval == pytest.approx(2.04, rel=0.01)
    assert told(life, "CheckpointInterval") == []


def test_a_run_of_this_machine_was_told_to_cordon_the_folder_of_a_worker() -> None:
    of_folder = an_incident(node="llama-0-1", worker="llama-0-1")
    assert told(with_incidents(of_folder, of_folder), "Node") == []


def test_the_node_on_which_attempts_ended_for_several_reasons_is_to_be_cordoned() -> None:
    (given,) = told(with_incidents(an_error("n7"), an_error("n7", cause="NodeLost")), "Node")
    assert given.text == (
        "node n7 caused 2 of 2 incidents: check it, and keep the run off it until then "
        "(kubectl cordon n7)"
    )


def test_a_node_is_not_blamed_for_an_error_that_the_script_raises_elsewhere_too() -> None:
    life = with_incidents(an_error("n7"), an_error("n7"), an_error("n8"))
    assert told(life, "Node") == []
    assert [it.text for it in told(life, "Cause")] == [
        "AppError ended 3 attempts: read the last lines of the rank named"
    ]


def test_a_node_on_which_alone_one_error_is_raised_may_be_to_blame() -> None:
    life = with_incidents(an_error("n7"), an_error("n7"), an_incident(cause="Hung", node="n8"))
    (given,) = told(life, "Node")
    assert given.text == (
        "node n7 caused 2 of 3 incidents: each time by the same error, in train.py:12: check the "
        "script first, then the node"
    )


@pytest.mark.parametrize(
    ("cause", "fields"),
    [
        ("AppError", []),
        ("Hung", ["set health.progressTimeout"]),
        ("Silent", ["lower health.heartbeatTimeout"]),
        ("NodeLost", ["lower health.heartbeatTimeout"]),
    ],
)
def test_shorter_timeouts_were_advised_to_a_script_that_crashes(
    cause: str, fields: list[str]
) -> None:
    _, first, second, _ = a_life()
    spent = {"useful": 50.0, "hang": 50.0}
    failed = (replace(it, spent=spent, incident=an_incident(cause=cause)) for it in (first, second))
    given = told(a_run(*failed), "Bucket")
    before = "50 % of the time (100 s) went into hang: no progress before the hang was detected; "
    assert len(given) == len(fields)
    for item, field in zip(given, fields, strict=True):
        assert item.text.startswith(before + field)


def test_the_advice_for_a_hang_names_where_it_stood() -> None:
    message = (
        "no step for 20 s (spec.health.progressTimeout): ranks 0, 1 are at step 12; one rank "
        "away: rank 0 is in `load` (train.py:6); 1 other in all_reduce"
    )
    (given,) = told(
        with_incidents(an_incident(cause="Hung", hang="OneRankAway", message=message)), "Cause"
    )
    assert given.text.startswith(
        "Hung ended 1 attempt: rank 0 is in `load` (train.py:6): check what"
    )
    (unknown,) = told(with_incidents(an_incident(cause="Hung", message=message)), "Cause")
    assert unknown.text.startswith("Hung ended 1 attempt: check what the rank")
