from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.states import a_state
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.evidence import OutputProgress
from trainrun.errors import InvalidSpec
from trainrun_operator.worlds.local.faults import OWN_TIME, Fault, FaultPlan, parse_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill rank=2 step=30", Fault(kind="kill", rank=2, step=30)),
        ("preempt rank=1 step=60 grace=20s", Fault(kind="preempt", rank=1, step=60, grace=20)),
        ("preempt step=60 rank=1", Fault(kind="preempt", rank=1, step=60, grace=30)),
        ("preempt rank=0 step=1 grace=1.5m", Fault(kind="preempt", rank=0, step=1, grace=90)),
        ("node-loss rank=3 step=40", Fault(kind="node-loss", rank=3, step=40)),
        ("hang rank=3 step=40", Fault(kind="hang", rank=3, step=40)),
        ("kill rank=3 step=40 at=save", Fault(kind="kill", rank=3, step=40, at="save")),
        ("preempt rank=0 after=30s", Fault(kind="preempt", rank=0, after=30)),
    ],
)
def test_a_fault_is_read(text: str, fault: Fault) -> None:
    assert parse_fault(text, world_size=4) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a fault; use kill, preempt, node-loss, hang"),
        ("kil rank=2 step=3", "'kil' is not a fault; use kill, preempt, node-loss, hang"),
        ("kill rank=2 step=3 at=dawn", "at=dawn is not valid; use report, save, load"),
        ("kill rank=2", "step= needs a whole number"),
        ("kill rank=x step=3", "rank=x needs a whole number"),
        ("kill rank=4 step=3", "there is no rank 4: ranks are 0 to 3"),
        ("kill rank=2 step=3 grace=2s", "'grace=2s' is not valid; kill takes step=..."),
        ("kill rank 2", "'rank' is not valid; kill takes step=..., rank=..., at=..."),
        ("kill rank=1 after=1", "after=1 is not a duration such as 20s or 1m"),
        ("kill rank=1 after=1s step=3", "after= replaces step= and at=; give only one of"),
        ("preempt rank=1 step=1 grace=soon", "grace=soon is not a duration such as 20s or 1m"),
    ],
)
def test_a_wrong_fault_names_the_word_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        parse_fault(text, world_size=4)
    assert str(raised.value).startswith(f'--fault "{text}": {message}')


def test_a_fault_is_shown_as_it_is_typed() -> None:
    for text in ("kill rank=2 step=30 at=save", "preempt rank=1 after=60s grace=20s"):
        assert str(parse_fault(text, world_size=4)) == text


def a_plan(folder: Path, *faults: str, per_worker: int = 1) -> FaultPlan:
    parsed = [parse_fault(text, world_size=9) for text in faults]
    return FaultPlan(parsed, processes_per_worker=per_worker, folder=folder / "faults")


def reached(plan: FaultPlan, **state: Any) -> list[tuple[str, float]]:
    found = plan.reached(a_state(**{"phase": "Running", **state}))
    return [(str(planned.fault), delay) for planned, delay in found]


def test_a_fault_strikes_at_once_when_its_own_rank_has_reported_its_step(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "node-loss rank=3 step=5", per_worker=2)
    assert reached(plan, slot=1, steps=(None, 4)) == []
    assert reached(plan, slot=1, steps=(None, 6)) == [("node-loss rank=3 step=5", 0.0)]


def test_a_rank_that_reports_nothing_is_struck_when_another_reports_the_step(
    tmp_path: Path,
) -> None:
    plan = a_plan(tmp_path, "kill rank=1 step=5")
    assert reached(plan, slot=0, steps=(4,)) == []
    assert reached(plan, slot=0, steps=(5,)) == [("kill rank=1 step=5", OWN_TIME)]


def test_where_no_rank_reports_a_step_the_one_that_the_output_shows_counts(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "kill rank=0 step=5")
    shown = OutputProgress(rank=0, form="nanoGPT", line="iter 5: loss 1.0", step=5)
    assert reached(plan, slot=0, steps=(None,), output=replace(shown, step=4)) == []
    assert reached(plan, slot=0, steps=(None,), output=shown) == [("kill rank=0 step=5", 0.0)]
    assert reached(plan, slot=0, steps=(4,), output=shown) == []


def test_a_fault_of_a_script_without_steps_strikes_so_long_after_it_began(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "kill rank=1 after=1.5s")
    assert (plan.kills_of(1), plan.steps) == ((), ())
    assert reached(plan, slot=0) == []
    assert reached(plan, slot=1, phase="Starting") == []
    assert reached(plan, slot=1) == [("kill rank=1 after=1.5s", 1.5)]
    assert reached(plan, slot=1, steps=(9,)) == [("kill rank=1 after=1.5s", 1.5)]


def test_moments_that_only_the_agent_sees_are_left_to_it(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "kill rank=1 step=5 at=save")
    assert reached(plan, slot=1, steps=(6,)) == []
    (told,) = plan.kills_of(1)
    assert (told.step, told.at) == (5, "save")


def test_the_steps_of_an_attempt_that_is_over_strike_nobody(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "preempt rank=0 step=5")
    assert reached(plan, slot=0, steps=(7,), phase="Idle") == []


def test_a_fault_is_pending_until_somebody_strikes(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "kill rank=1 step=5", "kill rank=1 step=9")
    assert (plan.kills_of(0), plan.steps) == ((), (5, 9))
    # The rank ends by SIGKILL, but not by this fault: that says nothing.
    assert reached(plan, slot=1, steps=(2,), exits=(ProcessExit(rank=1, signal=9),)) == []
    assert [kill.step for kill in plan.kills_of(1)] == [5, 9]
    assert plan.pending[0].strike()
    assert not plan.pending[0].mark.exists()
    assert [kill.step for kill in plan.kills_of(1)] == [9]
    assert [str(planned.fault) for planned in plan.pending] == ["kill rank=1 step=9"]


def test_a_fault_is_struck_by_one_alone(tmp_path: Path) -> None:
    (planned,) = a_plan(tmp_path, "kill rank=1 step=5").pending
    assert planned.strike()
    assert not planned.strike()


def test_the_same_command_again_strikes_again(tmp_path: Path) -> None:
    assert a_plan(tmp_path, "kill rank=1 step=5").pending[0].strike()
    assert len(a_plan(tmp_path, "kill rank=1 step=5").pending) == 1


def test_the_grace_of_a_preemption_goes_to_its_worker_alone(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, "preempt rank=1 step=5 grace=7s")
    assert (plan.grace_of(0), plan.grace_of(1)) == (30, 7)
