"""The runs of a drill: how far each must get, what was observed of it, and the faults that strike
it, at steps that follow from what the undisturbed run did.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from trainrun.contract.agent_config import KillMoment
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.metrics import Metric
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.worlds.local.faults import Fault

Curve = Mapping[int, "Mapping[str, Metric]"]
"""Metrics by step."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file of a checkpoint."""

    fingerprint: tuple[int, int]
    """Size and checksum."""
    entries: Mapping[str, bytes] | None = None
    """Digests of its contents, by path; None: only its bytes can be compared."""


Files = Mapping[str, Content]
"""The files of a checkpoint, by name."""

BARS = ("form tqdm", "form Hugging Face")
"""How `Chapter.read_from` begins if a bar shows the steps."""

Ending = Literal["Stopped", "Succeeded", "Failed", "OutOfTime"]
"""Stopped: it had reached its goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One report of rank 0 that has metrics."""

    attempt: int
    step: int
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """What happened after a notice: seconds after it, None for what did not happen."""

    agreed: float | None = None
    """The ranks had agreed on the call of should_save() that returns true."""
    reported: float | None = None
    """A rank had reported the requested checkpoint."""
    committed: float | None = None
    """It was committed; if none was requested, one of a step not before the notice."""
    calls: int = 0
    """Calls of should_save() that each worker made, at least, after the one that returned true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRun:
    """One run from fresh storage."""

    ending: Ending
    world_size: int
    seconds: float
    """Duration of the whole run."""
    points: tuple[Point, ...] = ()
    """In the order of the reports."""
    chapters: tuple[Chapter, ...] = ()
    """The chapters in which an attempt ran."""
    committed: tuple[int, ...] = ()
    """Steps of the first attempt's checkpoints, ascending."""
    contents: Mapping[tuple[int, int], Files] = field(default_factory=dict)
    """Contents of the good checkpoints that still exist, by attempt and step."""
    savers: tuple[int, ...] = ()
    """Ranks that saved files for them, ascending."""
    reported: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """The highest step that was reported, by attempt and rank."""
    sought: frozenset[int] = frozenset()
    """Attempts in which a process called get_checkpoint()."""
    asked: frozenset[int] = frozenset()
    """Attempts in which a process called should_save()."""
    commit_gap: float = 0.0
    """Longest time between two commits of the first attempt, in seconds; 0: not known."""
    ask_gap: float = 0.0
    """Longest time between two calls of should_save() in the first attempt, in seconds."""
    longest_step: float = 0.0
    """Longest time that a rank of the first attempt was without a new step, in seconds, as far as
    seen."""
    opened: frozenset[int] = frozenset()
    """Attempts in which a process opened a checkpoint."""
    parts: tuple[int, ...] = ()
    """Steps for which some ranks had saved files, while others had not got there."""
    has_heartbeats: bool = True
    """Its agents' heartbeats were received. Else `ask_gap`, `longest_step`, `parts` and `noticed`
    are not known, and `sought` and `asked` hold each attempt unless something says otherwise."""
    reads_output: bool = False
    """Its script keeps its checkpoints in a folder of its own and reports none: all steps are those
    of its output. `committed` has the ones at which a commit was seen; what an attempt was handed
    counts as the step before the first one that it shows."""
    unsaved: str = ""
    """Why nothing of that folder was stored, if nothing was."""
    struck: bool = False
    """Its faults have struck."""
    noticed: Noticed = Noticed()
    spoilt: int | None = None
    """Step of the checkpoint that was damaged on purpose."""
    failure: str = ""
    """Why it failed."""

    def steps(self, attempt: int) -> list[int]:
        """The steps that rank 0 reported with metrics in an attempt, in their order."""
        return [point.step for point in self.points if point.attempt == attempt]

    def began(self, attempt: int) -> int | None:
        """The first step of an attempt that rank 0's metrics show, or else its output, unless that
        is a bar: many begin at 0 and then jump."""
        shown = (
            chapter.began_with
            for chapter in self.chapters
            if chapter.attempt == attempt and not chapter.read_from.startswith(BARS)
        )
        return min(self.steps(attempt), default=next(shown, None))

    def curve(self, attempt: int) -> Curve:
        """The metrics of an attempt, by step; of a step that was reported twice the later ones."""
        return {point.step: point.metrics for point in self.points if point.attempt == attempt}

    def ranks(self, attempt: int) -> list[int]:
        """The ranks that reported a step in an attempt, ascending."""
        return sorted(self.reported.get(attempt, {}))

    def reached(self, attempt: int) -> int | None:
        """The highest step of an attempt on the lowest rank that reports."""
        by_rank = self.reported.get(attempt, {})
        steps = [*self.steps(attempt), *([by_rank[min(by_rank)]] if by_rank else [])]
        return max(steps, default=None)

    @property
    def last(self) -> int:
        """The attempt that continued after everything that happened."""
        return self.chapters[-1].attempt if self.chapters else 1

    @property
    def handed(self) -> CheckpointId | None:
        """The checkpoint that the last attempt got."""
        return self.chapters[-1].resumed_from if len(self.chapters) > 1 else None


def recovery(drill_run: DrillRun) -> float | None:
    """Seconds from the end of the first attempt to the first step of the last one; None: there was
    none."""
    if len(drill_run.chapters) < 2:
        return None
    ended, first = drill_run.chapters[0].ended, drill_run.chapters[-1].first_step
    return (first - ended).total_seconds() if ended is not None and first is not None else None


def detected(drill_run: DrillRun) -> float | None:
    """Seconds from the first failure until it was detected; None: that is not known."""
    seconds = drill_run.chapters[0].incident.get("detectSeconds") if drill_run.chapters else None
    return float(seconds) if isinstance(seconds, int | float) else None


def stages(drill_run: DrillRun) -> dict[str, float]:
    """The stages of the recovery, in seconds, in their order; they sum to it. Empty: not all of
    them are known.

    `stop`: until the last attempt began, further failures included; `start`: until its processes
    were started; `rendezvous`: until one asked for its checkpoint; `load`: until all had it;
    `firstStep`: the rest.
    """
    whole, last = recovery(drill_run), drill_run.chapters[-1] if drill_run.chapters else None
    if whole is None or last is None or last.spawned is None:
        return {}
    ended = drill_run.chapters[0].ended
    assert ended is not None
    stop = (last.begun - ended).total_seconds()
    start = (last.spawned - last.begun).total_seconds()
    rest = max(whole - stop - start, 0.0)
    rendezvous = min(last.rendezvous_seconds, rest)
    load = min(last.load_seconds, rest - rendezvous)
    parts = {
        "stop": stop,
        "start": start,
        "rendezvous": rendezvous,
        "load": load,
        "firstStep": rest - rendezvous - load,
    }
    return {name: round(seconds, 3) for name, seconds in parts.items()}


OfScript = Literal[
    "KillAfterCheckpoint",
    "KillWhileSaving",
    "Notice",
    "KillBeforeCheckpoint",
    "KillMidEpoch",
    "KillAtEnd",
]
Ours = Literal["CorruptNewest", "DoubleFailure", "NodeLoss", "StoreAway", "Hang"]
FaultName = OfScript | Ours

OF_SCRIPT: tuple[FaultName, ...] = get_args(OfScript)
"""In the order of rehearsal: those that find most come first, since time may be short."""
OURS: tuple[FaultName, ...] = get_args(Ours)
"""Faults that test TrainRun, in the same order."""
OF_FOLDER: tuple[FaultName, ...] = ("KillAfterCheckpoint", "NodeLoss")
"""Faults for scripts with `checkpoint.folder`; a lost node takes the folder with it."""

Store = Literal["Kept", "SpoilNewest", "Away"]
"""What happens to the storage when the fault strikes."""
AWAY = 5.0
"""Seconds for which a store is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fault to rehearse, or why it cannot be."""

    name: FaultName
    faults: tuple[Fault, ...] = ()
    """In the order in which they strike; each ends an attempt."""
    store: Store = "Kept"
    watched: float = 0.0
    """health.progressTimeout in seconds; 0: as in the file."""
    why_not: str = ""

    @property
    def shown(self) -> str:
        """The faults as on the command line."""
        return ", ".join(map(str, self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How far a run must get, and how long it may take."""

    until: int | None
    """A step; None: until it leaves room for every fault."""
    seconds: float
    share: float = math.inf
    """Seconds after which less room is enough, if there is no step."""


def scenarios(control: DrillRun, *, until: int, grace: float) -> tuple[Scenario, ...]:
    """What to rehearse after an undisturbed run that got to step `until`.

    The faults hit the highest rank that reports: rank 0, whose metrics are compared, survives.
    """
    saves = [step for step in control.committed if step < until]
    planned = (
        _after_checkpoint(control, saves, until),
        _while_saving(control, saves),
        _notice(control, saves, until, grace),
        _before_checkpoint(control, saves, until),
        _mid_epoch(control, saves, until),
    )
    return tuple(scenario for scenario in planned if scenario is not None)


def at_end(control: DrillRun, *, until: int) -> Scenario:
    """A kill with the last step, after a run that has ended by itself with this step."""
    if control.committed[-1:] != (until,):
        why = f"no checkpoint of the last step, {until}, was committed"
        return Scenario(name="KillAtEnd", why_not=why)
    rank = (control.savers or tuple(control.ranks(1)))[-1]  # it reports later than one that waits
    return _kill("KillAtEnd", rank, until)


def _kill(name: FaultName, rank: int, step: int, at: KillMoment = "report") -> Scenario:
    return Scenario(name=name, faults=(Fault(kind="kill", rank=rank, step=step, at=at),))


def _after_checkpoint(control: DrillRun, saves: list[int], until: int) -> Scenario:
    if not saves or second(saves) + 1 >= until:
        return Scenario(name="KillAfterCheckpoint", why_not=_no_room(control, saves, until))
    return _kill("KillAfterCheckpoint", control.ranks(1)[-1], second(saves) + 1)


def _while_saving(control: DrillRun, saves: list[int]) -> Scenario:
    name: FaultName = "KillWhileSaving"
    if not saves or not control.savers:
        return Scenario(name=name, why_not="no rank is known to have saved files before the end")
    # At the second save: so a complete checkpoint exists.
    return _kill(name, control.savers[-1], second(saves), at="save")


def _before_checkpoint(control: DrillRun, saves: list[int], until: int) -> Scenario | None:
    end = min([*saves, until])
    step = (min(control.steps(1), default=0) + end) // 2
    if step < end:
        return _kill("KillBeforeCheckpoint", control.ranks(1)[-1], step)
    if not saves or not control.savers:
        return None  # no moment before the first checkpoint can be observed
    return _kill("KillBeforeCheckpoint", control.savers[-1], end, at="save")


def _mid_epoch(control: DrillRun, saves: list[int], until: int) -> Scenario | None:
    if not saves:
        return Scenario(name="KillMidEpoch", why_not=_no_room(control, saves, until))
    saved, step = second(saves), middle(saves, until)
    later = next((save for save in saves if save > saved), until)
    reported = control.steps(1) or [step]
    if not any(saved + 1 < between < later for between in reported) or step <= saved + 1:
        return None  # it would repeat KillAfterCheckpoint
    return _kill("KillMidEpoch", control.ranks(1)[-1], step)


def _notice(control: DrillRun, saves: list[int], until: int, grace: float) -> Scenario:
    first = min(control.steps(1), default=0)
    step = middle(saves, until) if saves else (first + until) // 2
    if step >= until:
        return Scenario(name="Notice", why_not=f"no step is left before step {until}")
    fault = Fault(kind="preempt", rank=control.ranks(1)[-1], step=step, grace=grace)
    return Scenario(name="Notice", faults=(fault,))


def _no_room(control: DrillRun, saves: list[int], until: int) -> str:
    """Why no fault can strike after a checkpoint."""
    if not saves and control.reads_output:
        return f"no save was stored before step {until}: {control.unsaved}"
    if not saves:
        return (
            f"no checkpoint was committed before step {until}: save more often, or drill to a "
            "later step"
        )
    return f"no step is left between the checkpoint of step {saves[-1]} and step {until}"


def second(saves: list[int]) -> int:
    """The second checkpoint: so one exists, even if commits are slow."""
    return saves[min(1, len(saves) - 1)]


def middle(saves: list[int], until: int) -> int:
    """The step between the second checkpoint and the next one that is farthest from both."""
    saved = second(saves)
    later = next((step for step in saves if step > saved), until)
    return saved + max((later - saved) // 2, 1)


SHORTEST_TIMEOUT = 5.0
"""Seconds; the least that health.progressTimeout takes."""
PATIENCE = 3.0
"""Times the longest step of the undisturbed run that a rank may take before it counts as hung."""


def fault_scenarios(control: DrillRun, *, until: int) -> tuple[Scenario, ...]:
    """The faults of `--all`, which test TrainRun rather than the script: each strikes in mid-epoch,
    with a checkpoint behind it."""
    saves = [step for step in control.committed if step < until]
    if not saves or middle(saves, until) >= until:
        why = _no_room(control, saves, until)
        return tuple(Scenario(name=name, why_not=why) for name in OURS)
    kill = Fault(kind="kill", rank=control.ranks(1)[-1], step=middle(saves, until))
    damaged = Scenario(name="CorruptNewest", faults=(kill,), store="SpoilNewest")
    if len(saves) < 2 or not control.savers:
        why = "this fault needs two checkpoints before the last step, and damages one of them"
        damaged = Scenario(name="CorruptNewest", why_not=why)
    timeout = max(SHORTEST_TIMEOUT, round(PATIENCE * control.longest_step))
    return (
        damaged,
        Scenario(name="DoubleFailure", faults=(kill, replace(kill, step=0, at="load"))),
        Scenario(name="NodeLoss", faults=(replace(kill, kind="node-loss"),)),
        Scenario(name="StoreAway", faults=(kill,), store="Away"),
        Scenario(name="Hang", faults=(replace(kill, kind="hang"),), watched=timeout),
    )
