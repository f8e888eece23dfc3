"""What is wrong with a script's recovery.

Layer: cli; pure. Each finding follows from what one run did and what the undisturbed ones did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from trainrun.contract.answer import OnNotice
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.cli.drilling.comparing import (
    Compared,
    Contents,
    Deviation,
    Tolerance,
    common_steps,
    compare,
    deviations,
    distance,
    parts_of,
)
from trainrun_operator.cli.drilling.remedies import (
    AFTER_THE_LOOP,
    OF_ITS_SAVES,
    ONE_FOLDER,
    TAKES_FLAG,
    Finding,
    Kind,
    loading,
)
from trainrun_operator.cli.drilling.restore_diagnosis import After
from trainrun_operator.cli.drilling.restore_diagnosis import findings as looks_like
from trainrun_operator.cli.drilling.runs import DrillRun, Scenario
from trainrun_operator.cli.formatting import named, some
from trainrun_operator.cli.formatting import seconds as in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFreeBaseline:
    """The undisturbed runs that others are compared with."""

    control: DrillRun
    """The first undisturbed run."""
    within: Tolerance | None
    """None: curves cannot be compared."""
    contents: Contents = field(default_factory=dict)
    """What both undisturbed runs saved alike."""
    until: int
    """The step that every run goes to."""
    on_notice: OnNotice
    """`checkpoint.onNotice` of the run."""
    resume_args: tuple[str, ...] = ()
    """`checkpoint.folder.resumeArgs` of the run."""


def of_control(control: DrillRun, *, grace: float, on_notice: OnNotice) -> list[Finding]:
    """What an undisturbed run already shows."""
    return [*_silent(control), *of_gap(control, grace=grace, on_notice=on_notice)]


def _silent(control: DrillRun) -> Iterator[Finding]:
    silent = {*range(control.world_size)} - {*control.ranks(1)}
    if not silent or not control.parts:
        return
    text = (
        f"{named(silent)} of {control.world_size} reported nothing, and the checkpoint of step "
        f"{control.parts[0]} waited for them: it can be committed only when they have ended"
    )
    yield Finding(kind="RanksSilent", text=text)


def of_own_files(first: DrillRun, second: DrillRun) -> Finding:
    """The second undisturbed run continued where the first one ended."""
    first_step = min(second.steps(1), default=None)
    at = f"began with step {first_step}" if first_step is not None else "ended without a step"
    text = (
        "two undisturbed runs should start alike, but the first one began with step "
        f"{min(first.steps(1))}, the second one {at}. It found files of the first one in a "
        "folder that both share, so no fault can be rehearsed"
    )
    advice = ONE_FOLDER if first.reads_output else ""
    return Finding(kind="OwnFilesUsed", text=text, advice=advice)


def of_fault(scenario: Scenario, drill_run: DrillRun, baseline: FaultFreeBaseline) -> list[Finding]:
    """What a run shows after a fault has struck it."""
    if over := _started_over(drill_run, baseline):
        return [over]
    if drill_run.ending == "Failed":
        text = f"the run failed after the fault: {drill_run.failure}"
        advice = AFTER_THE_LOOP if scenario.name == "KillAtEnd" else ""
        advice = TAKES_FLAG if baseline.resume_args else advice
        return [Finding(kind="RecoveryFailed", text=text, advice=advice)]
    found = [*of_notice(scenario, drill_run, baseline.on_notice)]
    sequence = [*_sequence(drill_run, baseline.control)]
    if not sequence:  # otherwise steps stand for other work, and all would differ
        compared = compare(drill_run, baseline.contents)
        sequence = _curves(drill_run, baseline, compared) or [*_contents(compared)]
    if drill_run.reads_output:
        return [*found, *(replace(finding, advice=OF_ITS_SAVES) for finding in sequence)]
    saved_by = framework_of(baseline.control, drill_run.handed)
    return [
        *found,
        *(replace(finding, advice=loading(finding.kind, saved_by)) for finding in sequence),
    ]


def _started_over(drill_run: DrillRun, baseline: FaultFreeBaseline) -> Finding | None:
    """An unchanged script did not go on from its save."""
    first, at_first = drill_run.began(drill_run.last), baseline.control.began(1)
    if not drill_run.reads_output or drill_run.handed is None:
        return None
    if first is None or at_first is None or first > at_first:
        return None
    flag = " ".join(baseline.resume_args)
    ignored = f"the script ignored `{flag}`" if flag else "the script did not look for it"
    text = (
        f"a save was put back, but {ignored}: its output begins with step {first} again, as that "
        "of an undisturbed run"
    )
    return Finding(kind="StartedOver", text=text, advice=TAKES_FLAG if flag else "")


def framework_of(control: DrillRun, saved: CheckpointId | None) -> str:
    """The framework that saved this checkpoint; "": its files show none that is known."""
    files = control.contents.get((saved.attempt, saved.step), {}) if saved is not None else {}
    if "trainer_state.json" in files:
        return "transformers"
    if any("pytorch-lightning_version" in (content.entries or ()) for content in files.values()):
        return "lightning"
    return ""


def _sequence(drill_run: DrillRun, control: DrillRun) -> Iterator[Finding]:
    """Findings if the attempt after the fault does not continue where its checkpoint ends."""
    steps, handed = drill_run.steps(drill_run.last), drill_run.handed
    if not steps or handed is None:
        return
    first_step = steps[0]
    expected = min((s for s in control.steps(1) if s > handed.step), default=None)
    unread = drill_run.last not in drill_run.opened
    if first_step <= handed.step and unread:
        yield _ignored(drill_run, handed, first_step)
    elif unread and drill_run.ranks(drill_run.last) and drill_run.last not in drill_run.sought:
        text = (
            f"the attempt got the checkpoint of step {handed.step} and continued with step "
            f"{first_step} without calling get_checkpoint(): it resumes from files of its own"
        )
        yield Finding(kind="OwnFilesUsed", text=text)
    elif first_step == handed.step and first_step in control.steps(1):
        return  # only the metrics show whether that was done twice
    elif first_step <= handed.step:
        yield _repeated(handed.step, first_step)
    elif expected is not None and first_step > expected:
        text = (
            f"after the resume from step {handed.step} the first report is step {first_step}; an "
            f"undisturbed run reports step {expected} there"
        )
        yield Finding(kind="StepsSkipped", text=text)


def _repeated(handed: int, first_step: int) -> Finding:
    text = (
        f"after the resume from step {handed} the first report is step {first_step} again: "
        f"{handed + 1 - first_step} of the steps in the checkpoint were done twice"
    )
    return Finding(kind="StepsRepeated", text=text)


OF_ONE_STEP = frozenset(
    {
        "WeightsNotLoaded",
        "RandomNotRestored",
        "DataRestarted",
        "DataDiffers",
        "DataOrRandomDiffer",
        "LearningRateReset",
        "OptimizerReset",
    }
)
"""Findings that explain why a run begins with the step of its checkpoint: many scripts save before
the step whose number they give."""


def _one_ahead(after: After, wrong: list[Deviation]) -> bool:
    """Each step has the values of the next one."""
    shifted = [
        (
            after.run[step].get(deviation.first.metric),
            after.control[later].get(deviation.first.metric),
        )
        for deviation in wrong
        for step, later in pairwise(after.steps)
    ]
    return all(a is not None and b is not None and distance(a, b) == 0 for a, b in shifted)


def _ignored(drill_run: DrillRun, handed: CheckpointId, first_step: int) -> Finding:
    given = f"the attempt got the checkpoint of step {handed.step}"
    if drill_run.last in drill_run.sought:
        text = f"{given}, did not open it, and started again with step {first_step}"
        return Finding(kind="CheckpointNeverOpened", text=text)
    text = (
        f"{given}, but no process that reports called get_checkpoint(): it started again with "
        f"step {first_step}"
    )
    return Finding(kind="CheckpointNeverAsked", text=text)


def _curves(drill_run: DrillRun, baseline: FaultFreeBaseline, compared: Compared) -> list[Finding]:
    within, until = baseline.within, baseline.until
    if within is None:
        return []
    handed = drill_run.handed
    after = handed.step if handed is not None else -1
    again = handed is not None and drill_run.steps(drill_run.last)[:1] == [handed.step]
    after -= again
    run, control = drill_run.curve(drill_run.last), baseline.control.curve(1)
    wrong = deviations(run, control, within, after=after, until=until)
    if not wrong:
        return []
    steps = common_steps(run, control, after=after, until=until)
    parts = frozenset(parts_of(compared.wrong))
    after_resume = After(
        run=run,
        control=control,
        within=within,
        steps=steps,
        wrong=parts,
        right=frozenset(parts_of(compared.equal) - parts),
    )
    found = looks_like(after_resume, wrong)
    if again and (_one_ahead(after_resume, wrong) or found[0].kind not in OF_ONE_STEP):
        return [_repeated(after + 1, after + 1)]
    if handed is not None and drill_run.last not in drill_run.opened:
        text = f"no rank opened the files of the checkpoint. {found[0].text}"
        return [Finding(kind="CheckpointNeverOpened", text=text)]
    return found


def _contents(compared: Compared) -> Iterator[Finding]:
    if not compared.wrong:
        return
    wrong = some([f"{name:.60}" for name in compared.wrong], 3)
    text = (
        f"the checkpoint of step {compared.step}, saved after the resume, differs from those of "
        f"two undisturbed runs, which are equal: {wrong} ({len(compared.wrong)} of "
        f"{len(compared.wrong) + len(compared.equal)} entries). No metric shows it"
    )
    yield Finding(kind="CheckpointsDiffer", text=text)


CALLS_WITHOUT_SAVE = 2
"""Calls of should_save() after the one that returned true: a rank that makes so many is not
saving."""


def of_gap(control: DrillRun, *, grace: float, on_notice: OnNotice) -> Iterator[Finding]:
    """A notice could wait too long for the next call of should_save()."""
    if control.ask_gap <= grace or on_notice in ("Signal", "Stop"):
        return
    text = (
        f"the script did not call should_save() for {in_words(control.ask_gap)}: a notice of "
        f"{grace:g} s that arrives then is seen too late, and the training since the newest "
        "checkpoint is lost"
    )
    yield Finding(kind="SaveTooLate", text=text)


def of_notice(scenario: Scenario, drill_run: DrillRun, on_notice: OnNotice) -> Iterator[Finding]:
    """Whether a notice saved something, as shown by what the next attempt resumed from."""
    if not drill_run.struck or len(drill_run.chapters) < 2:
        return
    if scenario.name != "Notice" or on_notice == "Stop":
        return
    (fault,) = scenario.faults
    saved = drill_run.handed.step if drill_run.handed is not None else None
    if saved is not None and saved >= fault.step:
        return
    where = "from scratch" if saved is None else f"from step {saved}"
    notice = f"a notice of {fault.grace:g} s at step {fault.step}"
    cost = f"{notice} saved nothing: training continued {where}"
    kind, why = _unsaved(drill_run, fault.grace)
    yield Finding(kind=kind, text=f"{cost}{why}")


def _unsaved(drill_run: DrillRun, grace: float) -> tuple[Kind, str]:
    noticed = drill_run.noticed
    if 1 not in drill_run.asked:
        return "ShouldSaveNeverAsked", "; the script never called should_save()"
    if not drill_run.has_heartbeats:
        why = "; should_save() was called too late, or the save did not end in time"
        return "NoticeSavedNothing", why
    if noticed.agreed is None:
        return "SaveTooLate", "; some ranks had not called should_save() by then"
    asked = f"; should_save() returned true after {in_words(noticed.agreed)}"
    left = in_words(max(grace - noticed.agreed, 0.0))
    if noticed.reported is not None:
        return "SaveTooSlow", (
            f"{asked}, files were reported after {in_words(noticed.reported)}, and were not all "
            f"stored {in_words(max(grace - noticed.reported, 0.0))} later"
        )
    if noticed.calls >= CALLS_WITHOUT_SAVE:
        return "NoticeNotUsed", (
            f", although should_save() returned true: the script called it {noticed.calls} more "
            "times and reported no files"
        )
    return "SaveTooSlow", f"{asked}, and no files were reported in the remaining {left}"
