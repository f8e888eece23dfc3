"""What becomes of a notice: whether it saves something, and whether that fits into the grace.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.remedies import Finding
from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun.contract.answer import OnNotice
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.scenarios import Scenario

GOES_ON = 2
"""Calls of should_save() after the one that said yes: who makes so many is not saving."""


def of_gap(control: Course, *, grace: float, on_notice: OnNotice) -> Iterator[Finding]:
    """A notice would have to wait for the next call of should_save() for too long."""
    if control.ask_gap <= grace or on_notice in ("Signal", "Stop"):
        return
    text = (
        f"the script did not ask should_save() for {in_words(control.ask_gap)}: a notice of "
        f"{grace:g} s that comes then is not heard in time, and what was trained since the newest "
        "checkpoint is lost"
    )
    yield Finding(kind="SaveTooLate", text=text)


def of_notice(scenario: Scenario, course: Course, on_notice: OnNotice) -> Iterator[Finding]:
    """What a notice saved shows in what the next attempt was handed."""
    if not course.struck or len(course.chapters) < 2:
        return
    if scenario.name != "Notice" or on_notice == "Stop":
        return
    (fault,) = scenario.faults
    saved = course.handed.step if course.handed is not None else None
    if saved is not None and saved >= fault.step:
        return
    where = "from nothing" if saved is None else f"from step {saved}"
    cost = f"a notice of {fault.grace:g} s at step {fault.step} saved nothing: it went on {where}"
    yield _unsaved(course, cost, fault.grace)


def _unsaved(course: Course, cost: str, grace: float) -> Finding:
    told = course.noticed
    if 1 not in course.asked:
        return Finding(
            kind="ShouldSaveNeverAsked", text=f"{cost}; the script never asked should_save()"
        )
    if not course.listened:
        text = f"{cost}: should_save() was asked too late, or the save was not over in time"
        return Finding(kind="NoticeSavedNothing", text=text)
    if told.agreed is None:
        text = f"{cost}: by then not all ranks had asked should_save() and were told"
        return Finding(kind="SaveTooLate", text=text)
    heard = f"should_save() said so after {in_words(told.agreed)}"
    left = in_words(max(grace - told.agreed, 0.0))
    if told.reported is not None:
        text = (
            f"{cost}: {heard}, files were reported after {in_words(told.reported)}, and were not "
            f"all stored {in_words(max(grace - told.reported, 0.0))} later"
        )
        return Finding(kind="SaveTooSlow", text=text)
    if told.calls >= GOES_ON:
        text = (
            f"{cost}, although should_save() said so: the script asked it {told.calls} times more "
            "and reported no files"
        )
        return Finding(kind="NoticeNotUsed", text=text)
    text = f"{cost}: {heard}, and no files were reported in the {left} that were left"
    return Finding(kind="SaveTooSlow", text=text)
