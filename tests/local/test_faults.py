from __future__ import annotations

import pytest

from tests.runtime.states import a_state
from trainrun.errors import InvalidSpec
from trainrun.protocol import ProcessExit
from trainrun_operator.worlds.local.faults import Fault, FaultPlan, parse_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill rank=2 step=30", Fault(kind="kill", rank=2, step=30)),
        ("preempt rank=1 step=60 grace=20s", Fault(kind="preempt", rank=1, step=60, grace=20)),
        ("preempt step=60 rank=1", Fault(kind="preempt", rank=1, step=60, grace=30)),
        ("preempt rank=0 step=1 grace=1.5m", Fault(kind="preempt", rank=0, step=1, grace=90)),
        ("node-loss rank=3 step=40", Fault(kind="node-loss", rank=3, step=40)),
    ],
)
def test_a_fault_is_read(text: str, fault: Fault) -> None:
    assert parse_fault(text, world_size=4) == fault


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no fault; use kill, preempt, node-loss"),
        ("kil rank=2 step=3", "'kil' is no fault; use kill, preempt, node-loss"),
        ("kill rank=2", "step= is missing or no number"),
        ("kill rank=x step=3", "rank=x is missing or no number"),
        ("kill rank=4 step=3", "there is no rank 4: ranks are 0 to 3"),
        ("kill rank=2 step=3 grace=2s", "'grace=2s' is not understood; a kill takes step=..."),
        ("kill rank 2", "'rank' is not understood; a kill takes step=..., rank=..."),
        ("preempt rank=1 step=1 grace=soon", "grace=soon is no duration such as 20s or 1m"),
    ],
)
def test_a_wrong_fault_names_the_word_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        parse_fault(text, world_size=4)
    assert str(raised.value).startswith(f'--fault "{text}": {message}')


def test_a_preemption_strikes_once_when_its_rank_has_reached_its_step() -> None:
    fault = Fault(kind="preempt", rank=3, step=5)
    plan = FaultPlan([fault], processes_per_worker=2)
    assert plan.struck_by(a_state(slot=1, steps=(9, 4))) == []
    assert plan.struck_by(a_state(slot=0, steps=(9, 9))) == []
    assert plan.struck_by(a_state(slot=1, steps=(4, 6))) == [fault]
    assert plan.struck_by(a_state(slot=1, steps=(4, 7))) == []


def test_a_kill_is_handed_to_agents_until_one_has_done_it() -> None:
    fault = Fault(kind="kill", rank=1, step=5)
    plan = FaultPlan([fault], processes_per_worker=1)
    assert (plan.kills_of(0), plan.kills_of(1)) == ([], [fault])
    plan.struck_by(a_state(slot=1, steps=(7,)))
    assert plan.kills_of(1) == [fault]
    plan.struck_by(a_state(slot=1, steps=(7,), exits=(ProcessExit(rank=1, signal=9),)))
    assert plan.kills_of(1) == []


def test_the_grace_of_a_preemption_goes_to_its_worker_alone() -> None:
    plan = FaultPlan([Fault(kind="preempt", rank=1, step=5, grace=7)], processes_per_worker=1)
    assert (plan.grace_of(0), plan.grace_of(1)) == (30, 7)
