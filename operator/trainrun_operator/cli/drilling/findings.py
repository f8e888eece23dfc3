"""What is wrong with a script's recovery, and what to do about it.

Layer: cli; pure. Each finding follows from what one run did and what the undisturbed ones did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainrun_operator.cli.drilling.curves import Deviation, deviations

if TYPE_CHECKING:
    from trainrun.contract.answer import OnNotice
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.curves import Tolerance
    from trainrun_operator.cli.drilling.scenarios import Scenario

Kind = Literal[
    "RanksSilent",
    "RecoveryFailed",
    "CheckpointIgnored",
    "StepsRepeated",
    "StepsSkipped",
    "CurvesDiffer",
    "ShouldSaveNeverAsked",
    "NoticeNotUsed",
]

REMEDIES: dict[Kind, str] = {
    "RanksSilent": "call trainrun.report(step=..., checkpoint=...) on every rank, or "
    "report(..., whole=True) on the one that saves everything",
    "RecoveryFailed": "read the error: what was saved is not what is loaded, or the script cannot "
    "begin where its own files are already",
    "CheckpointIgnored": "call trainrun.get_checkpoint() before the loop, load its files from "
    "as_directory(), and go on from its step + 1",
    "StepsRepeated": "go on from get_checkpoint().step + 1, and report a checkpoint with the last "
    "step that is in it",
    "StepsSkipped": "go on from get_checkpoint().step + 1, and report a checkpoint with the last "
    "step that is in it",
    "CurvesDiffer": "save and load all that the next step depends on: weights, optimizer, "
    "learning-rate schedule, place in the data, random numbers (trainrun.torch.State does)",
    "ShouldSaveNeverAsked": "ask trainrun.should_save() after each step on every rank, and save "
    "when it is true; or save on SIGTERM",
    "NoticeNotUsed": "save as soon as should_save() is true, ask it after each step, and give the "
    "workers a terminationGracePeriodSeconds in which a save fits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that would go wrong on the day."""

    kind: Kind
    text: str

    @property
    def remedy(self) -> str:
        """What to change."""
        return REMEDIES[self.kind]


def of_control(control: Course) -> list[Finding]:
    """What an undisturbed run shows already."""
    silent = [r for r in range(control.world_size) if r not in control.ranks(1)]
    if not silent or not control.parts:
        return []
    named = ", ".join(map(str, silent[:8])) + (", ..." if len(silent) > 8 else "")
    word = "rank" if len(silent) == 1 else "ranks"
    text = (
        f"{word} {named} of {control.world_size} reported nothing, and the checkpoint of step "
        f"{control.parts[0]} waited for them: it can be committed only when they have ended"
    )
    return [Finding(kind="RanksSilent", text=text)]


def of_fault(
    scenario: Scenario,
    course: Course,
    control: Course,
    within: Tolerance | None,
    *,
    until: int,
    on_notice: OnNotice,
) -> list[Finding]:
    """What a run shows that a fault has struck. `within`: None where curves cannot be compared."""
    if course.ending == "Failed":
        text = f"the run failed after the fault: {course.failure}"
        return [Finding(kind="RecoveryFailed", text=text)]
    found = [*_notice(scenario, course, on_notice)]
    sequence = [*_sequence(course, control)]
    found += sequence
    if within is not None and not sequence:
        # Else the steps do not stand for the same work, and would differ in everything.
        after = course.handed.step if course.handed is not None else -1
        wrong = deviations(course.curve(2), control.curve(1), within, after=after, until=until)
        found += [_differs(it, opened=2 in course.opened) for it in wrong[:1]]
    return found


def _sequence(course: Course, control: Course) -> Iterator[Finding]:
    """The second attempt has to go on where its checkpoint ends."""
    steps = course.steps(2)
    if not steps:
        return
    handed, begun = course.handed, steps[0]
    if handed is None:
        return
    expected = min((s for s in control.steps(1) if s > handed.step), default=None)
    if begun <= handed.step and 2 not in course.opened:
        text = (
            f"it was handed the checkpoint of step {handed.step}, opened nothing of it and began "
            f"again with step {begun}"
        )
        yield Finding(kind="CheckpointIgnored", text=text)
    elif begun <= handed.step:
        text = (
            f"after the resume from step {handed.step} the first report is step {begun} again: "
            f"{handed.step + 1 - begun} of the steps in the checkpoint were done twice"
        )
        yield Finding(kind="StepsRepeated", text=text)
    elif expected is not None and begun > expected:
        text = (
            f"after the resume from step {handed.step} the first report is step {begun}; an "
            f"undisturbed run reports step {expected} there"
        )
        yield Finding(kind="StepsSkipped", text=text)


def _notice(scenario: Scenario, course: Course, on_notice: OnNotice) -> Iterator[Finding]:
    fault = scenario.fault
    if not course.struck or len(course.chapters) < 2:
        return  # what a notice saved shows in what the next attempt was handed
    if scenario.name != "Notice" or fault is None or on_notice == "Stop":
        return
    saved = course.handed.step if course.handed is not None else None
    if saved is not None and saved >= fault.step:
        return
    where = "from nothing" if saved is None else f"from step {saved}"
    cost = f"a notice of {fault.grace:g} s at step {fault.step} saved nothing: it went on {where}"
    if 1 in course.asked:
        text = f"{cost}, although the script asks should_save()"
        yield Finding(kind="NoticeNotUsed", text=text)
    else:
        text = f"{cost}; the script never asked should_save()"
        yield Finding(kind="ShouldSaveNeverAsked", text=text)


def _differs(it: Deviation, *, opened: bool) -> Finding:
    first, largest = it.first, it.largest
    hint = (
        "equal in the first step, so rather optimizer, schedule or random numbers than weights"
        if it.compared > it.steps
        else "different at once, so weights, data or random numbers"
    )
    if not opened:
        hint = "no rank opened the files of the checkpoint"
    text = (
        f"{first.metric} differs from an undisturbed run in {it.steps} of {it.compared} steps "
        f"after the resume, first in step {first.step} ({_shown(first.got)} instead of "
        f"{_shown(first.expected)}), most in step {largest.step} (by {largest.size:.4g}; "
        f"{it.allowed:.4g} is allowed): {hint}"
    )
    return Finding(kind="CurvesDiffer", text=text)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
