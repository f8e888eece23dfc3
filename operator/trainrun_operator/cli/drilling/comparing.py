"""Compare two runs: their metrics step by step, their checkpoints entry by entry; and find out by
its name what a metric or an entry is about.

Layer: cli; pure. What differs between two undisturbed runs is not compared: the time, random names.
Differing bytes prove nothing if only bytes can be compared. Names are read by whole words:
`loss_per_step` is not `per_s`, `beta` is not `eta`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainrun.contract.metrics import Metric
from trainrun_operator.cli.drilling.runs import Content, Curve, DrillRun, Files

DIGITS = 6
"""Decimal places. Two clock readings never agree to more."""

_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z]+")
_MEMORY = re.compile(r"_(?:v?ram|[cg]pu_?mem(?:ory)?|mem(?:ory)?)_(?!.*loss)")
_TIME = re.compile(
    r"_(?:(?:run|wall|up|step|iter|batch|epoch|data|train|load|cpu|gpu)?time|timers?|timestamp"
    r"|ms|[mnu]?secs?|(?:milli|micro|nano)?seconds|eta|elapsed|duration|latency"
    r"|per_s|per_second|s_per|speed|throughput|util|utili[sz]ation|[kmgtp]?flops|[mh]fu"
    r")_(?!.*loss)"  # a loss is not a time: duration_loss
)


_TRAINING = re.compile(
    r"loss|perplex|ppl|accura|objective|_(?:acc|top\d|err|error|errors|reward|return|score|norm|grad"
    r"|auc|f1|bleu|rouge|r?mse|mae|nll|bp[bc]|ce|kl|elbo|wer|cer|m?ap|m?iou|dice|psnr|ssim|fid"
    r"|entropy|cost)_"
)
_COUNT = re.compile(r"_(?:epochs?|steps?|iters?|tokens|samples|progress|seen|lr|learning_?rate)_")


def about_training(name: str) -> bool:
    """Whether a metric is named after what is trained: a loss, a score, a gradient."""
    return _TRAINING.search(_words(name)) is not None


def about_progress(name: str) -> bool:
    """Whether a metric is named after something that follows from the step alone, such as a
    learning rate."""
    return _COUNT.search(_words(name)) is not None


def about_memory(name: str) -> bool:
    """Whether a metric is named after memory of the machine."""
    return _MEMORY.search(_words(name)) is not None


def about_machine(name: str) -> bool:
    """Whether a metric is named after memory, time, or something measured in time."""
    return about_memory(name) or _TIME.search(_words(name)) is not None


def _words(name: str) -> str:
    """`_train_tokens_per_sec_` of `train/tokensPerSec`."""
    return f"_{_BOUNDARY.sub('_', name).lower()}_"


Part = Literal["Rate", "Data", "Random", "Weights"]

METRICS: dict[Part, re.Pattern[str]] = {
    "Rate": re.compile(r"(^|[/_.\-])lr([/_.\-\d]|$)|learning_?rate"),
    "Data": re.compile(r"(batch|data|sample|input)\w*[/_.\-]?(hash|digest|ids?$)"),
    "Random": re.compile(r"(rng|random|seed)\w*[/_.\-]?(hash|digest|state)"),
    "Weights": re.compile(r"(weight|param|model)\w*[/_.\-]?(hash|digest)"),
}
"""Metrics that show for certain what differs."""

ENTRIES: dict[Part, re.Pattern[str]] = {
    "Random": re.compile(r"rng|random|generator|mt19937"),
    "Data": re.compile(
        r"epoch|sampler|loader|cursor|position|place\b|offset|consumed|seen|batch|data\b|index"
    ),
    "Rate": re.compile(r"sched|(^|[._ ])lr\b"),
}
"""Entries that a resumed training continues from what it has loaded: they differ only if that was
not loaded, while weights differ after any other difference."""


def of_state(metric: str) -> Part | None:
    """The part that the metric's name points to."""
    name = metric.lower()
    return next((part for part, pattern in METRICS.items() if pattern.search(name)), None)


_OF_MODEL = re.compile(r"model|module|optim|weight|bias|norm|embed|tracked|exp_avg|momentum")


def parts_of(entries: Iterable[str]) -> set[Part]:
    """The parts that these entries (`file: path`) of checkpoints belong to."""
    found: set[Part] = set()
    for entry in entries:
        path = entry.rpartition(": ")[2].lower()
        found |= {part for part, pattern in ENTRIES.items() if pattern.search(path)} - (
            {"Data"} if _OF_MODEL.search(path) else set()
        )
    return found


FAINT = 0.01
"""Part of a curve's range by which two undisturbed runs may differ, at most, to show something."""
SPREAD = 0.1
"""Part of the range of such a curve by which another run may differ from it."""
SEEN = 1.5
"""Times the allowed difference that a curve must move, at least, to show new weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A metric of one run that differs from another's at a step."""

    metric: str
    step: int
    expected: Metric
    got: Metric

    @property
    def size(self) -> float:
        """Their distance; infinite if that is not a number."""
        return distance(self.expected, self.got)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a run may differ from an undisturbed one."""

    allowed: Mapping[str, float]
    """By metric; 0: no difference. Metrics that are not named are not compared."""
    largest: tuple[Difference, ...] = ()
    """The largest difference of each training metric in which the two undisturbed runs differ."""
    steps: int = 0
    """Steps that both of them reported."""
    skipped: tuple[str, ...] = ()
    """Metrics not compared because of their names: they are about the machine."""
    noisy: tuple[str, ...] = ()
    """Metrics not compared because the two undisturbed runs differ in them."""

    @property
    def exact(self) -> bool:
        """The script is reproducible: the two runs are equal."""
        return not self.largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One metric that differs by more than is allowed."""

    first: Difference
    """At the first step where it does."""
    largest: Difference
    steps: int
    """Number of steps where it does."""
    compared: int
    """Steps that were compared."""
    allowed: float


def tolerance(one: Curve, other: Curve, *, until: int) -> Tolerance:
    """How far every other run may differ, from two undisturbed runs up to a step. What differs
    between them proves nothing, unless it is tiny next to how far the curve moves."""
    steps = sorted(step for step in one.keys() & other.keys() if step <= until)
    names = list(dict.fromkeys(name for step in steps for name in one[step]))
    allowed: dict[str, float] = {}
    largest: list[Difference] = []
    skipped: list[str] = []
    noisy: list[str] = []
    for name in names:
        differences = _differences(one, other, name, steps)
        if about_machine(name) and not _the_same(name, differences):
            skipped.append(name)
            continue
        widest = max(differences, key=lambda difference: difference.size, default=None)
        if widest is None:
            continue
        if widest.size == 0:
            allowed[name] = 0.0
            continue
        if about_training(name) or of_state(name):
            largest.append(widest)
        moved = _range(difference.expected for difference in differences)
        if (about_training(name) or of_state(name)) and widest.size <= FAINT * moved:
            allowed[name] = SPREAD * moved
        else:
            noisy.append(name)
    return Tolerance(
        allowed=allowed,
        largest=tuple(largest),
        steps=len(steps),
        skipped=tuple(skipped),
        noisy=tuple(noisy),
    )


def shows_weights(control: Curve, within: Tolerance, *, after: int, until: int) -> bool:
    """Whether a run with new weights after this step would differ from an undisturbed one."""
    steps = sorted(step for step in control if after < step <= until)
    unequal = any(
        about_training(difference.metric) and difference.metric in within.noisy
        for difference in within.largest
    )
    for name, allowed in within.allowed.items():
        if about_progress(name) or (unequal and not about_training(name)):
            continue
        for step, first in zip(steps, sorted(control), strict=False):
            now, early = control[step].get(name), control[first].get(name)
            if now is not None and early is not None and distance(now, early) > SEEN * allowed:
                return True
    return False


def _range(values: Iterable[Metric]) -> float:
    """How far a curve moves; 0 where it has no numbers."""
    found = [
        value for value in values if not isinstance(value, str | bool) and math.isfinite(value)
    ]
    return max(found) - min(found) if found else 0.0


def _the_same(name: str, differences: list[Difference]) -> bool:
    """Whether the metric is about the training, whatever its name. Memory may be equal in two
    undisturbed runs and still differ after a good resume."""
    if about_memory(name) or any(difference.size for difference in differences):
        return False
    values = [difference.expected for difference in differences]  # so equal: not from a clock
    return any(isinstance(value, float) and round(value, DIGITS) != value for value in values)


def deviations(
    run: Curve, undisturbed: Curve, within: Tolerance, *, after: int, until: int
) -> list[Deviation]:
    """Where a run differs from an undisturbed one by more than is allowed, in `after` < step <=
    `until`."""
    steps = common_steps(run, undisturbed, after=after, until=until)
    found = []
    for name, allowed in within.allowed.items():
        compared = list(_differences(undisturbed, run, name, steps))
        wrong = [difference for difference in compared if difference.size > allowed]
        if wrong and (of_state(name) or not _of_process(undisturbed, run, name, steps)):
            largest = max(wrong, key=lambda difference: difference.size)
            found.append(
                Deviation(
                    first=wrong[0],
                    largest=largest,
                    steps=len(wrong),
                    compared=len(compared),
                    allowed=allowed,
                )
            )
    return found


def _of_process(undisturbed: Curve, run: Curve, name: str, steps: Sequence[int]) -> bool:
    """Whether a metric has one value in all of one run, and another in all of the other: then it is
    about the process, as an attempt's number is."""
    before = {metrics[name] for metrics in undisturbed.values() if name in metrics}
    now = {run[step][name] for step in steps if name in run[step]}
    return len(before) == len(now) == 1 and not about_training(name)


def common_steps(run: Curve, undisturbed: Curve, *, after: int, until: int) -> tuple[int, ...]:
    """Steps that both have, in `after` < step <= `until`, ascending."""
    return tuple(sorted(s for s in run.keys() & undisturbed.keys() if after < s <= until))


def _differences(one: Curve, other: Curve, name: str, steps: Sequence[int]) -> list[Difference]:
    return [
        Difference(metric=name, step=step, expected=one[step][name], got=other[step][name])
        for step in steps
        if name in one[step] and name in other[step]
    ]


def distance(one: Metric, other: Metric) -> float:
    """0 for equal values, infinity for different ones that are not both finite numbers."""
    if one == other or (_is_nan(one) and _is_nan(other)):
        return 0.0
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return math.inf
    apart = abs(one - other)
    return apart if math.isfinite(apart) else math.inf


def _is_nan(value: Metric) -> bool:
    return isinstance(value, float) and math.isnan(value)


RECORDS = re.compile(
    r": (loops\.|callbacks\.ModelCheckpoint.*\.current_score$"
    r"|.*(restart|attempt|resume|elapsed|uptime|_time\b))"
)
"""Entries that differ after a restart in a sound script too: they count restarts or its own time.
Lightning's loops reset their validation counters, and its ModelCheckpoint forgets the score it saw
last."""

Contents = Mapping[int, "Files"]
"""By step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Checkpoints that a run saved after its resume, compared with the undisturbed ones."""

    steps: tuple[int, ...] = ()
    """Steps of the checkpoints that were compared."""
    step: int = 0
    """The first step where something differs."""
    wrong: tuple[str, ...] = ()
    """Entries that differ there, and missing files; empty: they are equal."""
    equal: tuple[str, ...] = ()
    """All other entries that were compared there."""
    unclear: tuple[str, ...] = ()
    """Files whose bytes differ at any step, and whose content cannot be read."""


def agreed(one: DrillRun, other: DrillRun) -> Contents:
    """What both undisturbed runs saved alike; nothing else can be compared."""
    found: dict[int, Files] = {}
    for (attempt, step), files in one.contents.items():
        also = other.contents.get((attempt, step), {})
        same = {
            name: alike for name in files.keys() & also if (alike := _same(files[name], also[name]))
        }
        if same:
            found[step] = same
    return found


def _same(one: Content, other: Content) -> Content | None:
    if one.fingerprint == other.fingerprint:
        return one
    if one.entries is None or other.entries is None:
        return None
    entries = {k: digest for k, digest in one.entries.items() if other.entries.get(k) == digest}
    return replace(one, entries=entries) if entries else None


def compare(drill_run: DrillRun, contents: Contents) -> Compared:
    """Compare what the last attempt of a run saved with these contents."""
    after = drill_run.handed.step if drill_run.handed is not None else -1
    steps: list[int] = []
    unclear: set[str] = set()
    for (attempt, step), files in sorted(drill_run.contents.items()):
        if attempt != drill_run.last or step <= after or step not in contents:
            continue
        expected = contents[step]
        readable = {
            name: content
            for name, content in expected.items()
            if _comparable(content, files.get(name))
        }
        unclear |= expected.keys() - readable.keys()
        if not readable:
            continue
        steps.append(step)
        wrong = [
            e for name, content in readable.items() for e in _wrong(name, content, files.get(name))
        ]
        if wrong:
            names = {e for name, content in readable.items() for e in _named(name, content)}
            equal = tuple(sorted(names - set(wrong)))
            return Compared(steps=tuple(steps), step=step, wrong=tuple(sorted(wrong)), equal=equal)
    return Compared(steps=tuple(steps), unclear=tuple(sorted(unclear)))


def _comparable(expected: Content, got: Content | None) -> bool:
    if got is None or got.fingerprint == expected.fingerprint:
        return True
    return expected.entries is not None and got.entries is not None


def _named(name: str, content: Content) -> dict[str, bytes | None]:
    """Its entries, prefixed with the name of the file."""
    if content.entries is None:
        return {name: None}
    return {f"{name}: {at}" if at else name: digest for at, digest in content.entries.items()}


def _wrong(name: str, expected: Content, got: Content | None) -> list[str]:
    if got is None:
        return [name]
    if got.fingerprint == expected.fingerprint:
        return []
    entries = _named(name, got)
    return [
        at
        for at, digest in _named(name, expected).items()
        if entries.get(at) != digest and not RECORDS.search(at)
    ]
