"""What changes in a message by itself is marked where the field is declared."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from trainrun.contract.agent_state import (
    AgentState,
    Committed,
    Damaged,
    Held,
    Notice,
    Offer,
    Problem,
    ProcessExit,
    Rechecked,
    Resolution,
    SaveVote,
    Suspect,
)
from trainrun.contract.ages import Passing, aged, changed, essence, passing
from trainrun.contract.answer import Answer, Exit, Hold, Recheck, SaveOrder, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import (
    CodeFile,
    Evidence,
    OutputProgress,
    Posted,
    RankConnections,
    RankEvidence,
)
from trainrun.contract.staged_parts import CopiedPart, StagedStep

STATE = AgentState(
    run="digits",
    run_uid="uid-1",
    slot=0,
    worker="digits-0-1",
    created_for=1,
    agent="a1",
    sequence=7,
    exits=(ProcessExit(rank=0, signal=9, age=1.0),),
    steps=(3, None),
    metrics={"loss": 0.5},
    staged=(StagedStep(step=2, ranks=(0,), age=4.0),),
    committed=Committed(id=CheckpointId(attempt=1, step=1), age=5.0),
    notice=Notice(reason="SIGTERM", age=2.0, remaining=10.0),
    resolution=Resolution(attempt=1, outcome="Resolved", age=6.0),
    spawned=60.0,
    first_step=50.0,
    stepped=0.5,
    stall=1.5,
    seen="digest",
)

OTHERS: dict[str, Any] = {
    "output": OutputProgress(rank=0, form="tqdm", line="9%| 1/9 []"),
    "version": 2,
    "run": "other",
    "run_uid": "uid-2",
    "slot": 1,
    "worker": "digits-1-1",
    "created_for": 2,
    "agent": "a2",
    "node": "node-7",
    "phase": "Running",
    "attempt": 3,
    "exits": (),
    "staged": (),
    "dropped": (4,),
    "holds": (CheckpointId(attempt=1, step=4),),
    "committed": None,
    "save": SaveVote(calls=1),
    "notice": None,
    "held": Held(attempt=1),
    "code": (CodeFile(path="/code/train.py", digest="0f"),),
    "offer": Offer(attempt=1, address="10.0.0.1", port=1),
    "resolution": None,
    "problems": (Problem(type="T", reason="R", message="m"),),
    "fatal": Problem(type="T", reason="R", message="m"),
    "damaged": Damaged(id=CheckpointId(attempt=1, step=1), message="m"),
    "suspect": Suspect(id=CheckpointId(attempt=1, step=1), files=("f",), message="m"),
    "evidence": Evidence(attempt=3, number=1, ranks=(RankEvidence(rank=2),)),
    "recorded": (3,),
    "rechecked": Rechecked(
        recheck=Recheck(attempt=1, id=CheckpointId(attempt=1, step=1), files=("f",)), good=True
    ),
    "finished": True,
    "meeting": RankConnections(known=True),
    "spawned": None,
    "first_step": None,
    "stepped": None,
    "copies": (CopiedPart(slot=1, step=2),),
    "serves": "10.0.0.1:1",
    "serves_tls": "10.0.0.1:2",
}
"""Another value for each field by which the operator decides: it is woken when one changes."""

MESSAGES = (AgentState, Answer, Hold, Start, Exit, SaveOrder, ProcessExit, StagedStep, Committed)


def fields_of(*classes: type) -> Iterator[tuple[type, str, Any]]:
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            yield cls, field.name, hints[field.name]


def test_a_field_of_the_state_changes_by_itself_or_is_news() -> None:
    # A new field belongs to one of them: unmarked and always another, it would wake the operator
    # with every heartbeat of every worker.
    moving = {name for name, how in passing(AgentState).items() if how is not Passing.AGE}
    assert moving | set(OTHERS) == {field.name for field in dataclasses.fields(AgentState)}
    assert moving & set(OTHERS) == set()


@pytest.mark.parametrize("name", OTHERS)
def test_a_change_by_which_the_operator_decides_is_news(name: str) -> None:
    assert essence(dataclasses.replace(STATE, **{name: OTHERS[name]})) != essence(STATE)


@pytest.mark.parametrize("name", passing(AgentState))
def test_a_field_that_changes_by_itself_is_no_news(name: str) -> None:
    others = {"sequence": 9, "seen": "x", "steps": (4, 4), "metrics": {"a": 1}, "posted": Posted()}
    changed = dataclasses.replace(STATE, **{name: others.get(name, 99.0)})
    assert essence(changed) == essence(STATE)


@pytest.mark.parametrize("by", [0.0, 3.0, 100.0])
def test_growing_old_is_no_news(by: float) -> None:
    assert essence(aged(STATE, by=by)) == essence(STATE)


LENGTHS = {(Answer, "poll"), (Hold, "linger_seconds"), (Hold, "flush_allowed")}
"""Counted by whoever hears them first: not until a moment that the sender has in mind."""


def test_ages_grow_and_remaining_times_shrink_to_nothing() -> None:
    old = aged(STATE, by=30.0)
    assert old.notice == Notice(reason="SIGTERM", age=32.0, remaining=0.0)
    assert [end.age for end in old.exits] == [31.0]
    assert (old.spawned, old.sequence, old.steps) == (90.0, 7, (3, None))
    assert aged(dataclasses.replace(STATE, spawned=None), by=1.0).spawned is None


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, name, id=f"{cls.__name__}.{name}")
        for cls, name, hint in fields_of(*MESSAGES, Notice, Resolution)
        if float in (hint, *typing.get_args(hint))
    ],
)
def test_a_time_in_a_message_is_marked_or_stays_as_it_is(cls: type, name: str) -> None:
    assert name in passing(cls) or (cls, name) in LENGTHS


def test_the_digest_of_an_answer_does_not_change_with_what_remains() -> None:
    answer = Answer(
        order=Hold(attempt=2, flush=(1,), flush_seconds=9.0),
        save=SaveOrder(stage="Commit", call=3, deadline=20.0),
    )
    assert aged(answer, by=5.0) != answer
    assert aged(answer, by=5.0).digest == answer.digest
    assert dataclasses.replace(answer, drop=(1,)).digest != answer.digest


START = Start(attempt=3, workers=2, world_size=2, master_addr="10.0.0.1", master_port=20000)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (STATE, {}),
        (STATE, {"sequence": 8, "spawned": None}),
        (START, {"attempt": 4}),
        (Answer(order=START), {"order": Hold(attempt=2), "progress": 5.0}),
    ],
)
def test_a_copy_is_equal_to_what_replace_makes(message: Any, fields: dict[str, Any]) -> None:
    before = dataclasses.replace(message)
    assert changed(message, **fields) == dataclasses.replace(message, **fields)
    assert message == before
    assert hash(changed(START)) == hash(START)


def test_a_copy_cannot_be_changed_either() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed(START).attempt = 4  # type: ignore[misc]


def test_a_field_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError):
        changed(START, colour="red")


@dataclass(frozen=True, slots=True)
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        assert self.low <= self.high


def test_what_checks_its_fields_when_it_is_made_is_not_copied_past_that() -> None:
    with pytest.raises(TypeError, match="Checked"):
        changed(Checked(1, 2), low=3)
