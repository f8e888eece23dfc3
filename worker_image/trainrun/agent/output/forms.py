"""Steps, metrics and signs of life from lines of output.

Layer: agent, pure: lines and their times in, steps out. Runs in a process of its own (`matcher`).
Two things differ: a line that moves against the line of its series before it is a sign of life, and
a number that grows is progress. A script prints several series: the bar of a tokenizer,
the training, an evaluation, a bar at each save. Only one of them is the training. It is the one
that shows a loss or an epoch; among equals the first, until it is complete or stands still while
another moves.

Invariants: a number is taken as printed, nothing is added or subtracted; a rounded one (1.2k) is no
step. Each expression takes time proportional to the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from trainrun._common.text import without_escapes

Metrics: TypeAlias = "dict[str, int | float]"

MOST_DIGITS = 15
"""Of a step: any JSON reader represents it exactly."""
MOST_METRICS = 32
"""Metrics taken from a line, and kept of a series."""
MOST_SERIES = 64
"""Series that are kept apart: the newest."""
STANDS = 600.0
"""Seconds without a line after which another series that moves counts as the training."""
LINE_WIDTH = 120
"""Characters kept of the line from which a series was recognised."""

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf)\b"
_METRIC = re.compile(
    r"(?<!\w)([A-Za-z_][\w@/.-]*(?: [a-z][\w-]*){0,5})(?: ?[:=]\s*|\s+)"
    rf"({_NUMBER})(?![\w.%/]|:\d)"
)
"""`loss: 0.5`, `Acc@1  12.5`, `lm loss: 1.08E+01`; not `12s`, `195.41ms`, `0:02:30`."""
_ITEM = re.compile(rf"'([\w/.-]{{1,64}})': '?({_NUMBER})(?=[',}}])")
"""An item of a dictionary that Hugging Face's Trainer prints; newer versions quote its numbers."""
_EPOCH_OF_BAR = re.compile(r"(?i)\bepochs?\W{0,3}(\d+)|^\s*(\d+)/\d+\s")
"""In the text before a bar: `Epoch 3`, or YOLO's `  3/100  2.5G`."""
_ASIDE = re.compile(
    r"(?i)valid|eval|\btest|sanity|predict|sampl|generat|\bmap\b|tokeniz|download|\bload(?:ing)?\b"
    r"|filter|group|cach|scan|fetch|\bsav|resolv|shard|infer|examples/s"
)
"""Around a bar that is not the training: `Validation DataLoader 0`, `Running tokenizer`."""
_VALUE = re.compile(rf"{_NUMBER}|\d+")


_BATCH = r"\[\s{0,9}(?P<batch>\d+)/(?P<batches>\d+)"
FORMS = {
    "nanoGPT": ("loss ", r"^(?:iter|step) (?P<step>\d+): (?=(?:train )?loss )"),
    "imagenet": ("Epoch: [", rf"^Epoch: \[(?P<epoch>\d+)\]\s{{0,9}}{_BATCH}\]"),
    "timm": ("Train: ", rf"\bTrain: (?P<epoch>\d+) {_BATCH}\b"),
    "Megatron-LM": ("iteration", r"\biteration\s{1,20}(?P<step>\d+)/\s{0,20}(?P<total>\d+) \|"),
    "detectron2": ("iter: ", r"\biter: (?P<step>\d+) "),
}
"""By name, what is in every such line, and the expression that is then tried; the metrics follow
after it. Five of the nine: tqdm, Lightning, Hugging Face and Keras need more below."""
_BAR = re.compile(
    r"\d{1,3}%\|[^|]{0,400}\|\s{0,9}(?P<step>\d+)/(?P<total>\d+) \[(?P<rest>[^][]{0,400})\]"
)
"""tqdm. The last state of a bar has no line end: the bracket shows that it is whole."""
_THIN_BAR = re.compile(
    r"\d{1,3}% [━╸─]{1,100} (?P<step>\d+)/(?P<total>\d+) (?P<rest>[\d.]+\S{0,3}/\S{1,4}) \d"
)
"""Ultralytics: `  1/100  2.5G  1.2: 50% ━━━━━━────── 4/8 3.5it/s 1.2s<1.1s`."""
_KERAS_EPOCH = re.compile(r"^Epoch (\d+)/\d+$")
_KERAS = re.compile(
    r"^\s{0,9}(?P<batch>\d+)/(?P<batches>\d+) (?:\[[=>.]+\]|[━╸╺]+)(?=.*(?:- |/step))"
)
_DICTIONARY = re.compile(r"^\{'[\w/.-]+': .*\}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineState:
    """What one line says."""

    key: tuple[str, ...]
    """Its series."""
    form: str
    number: int
    total: int | None = None
    metrics: Metrics = field(default_factory=dict)
    sure: bool = False
    """It is a line of a training: it shows a loss or an epoch, or the user's pattern matches."""
    aside: bool = False
    """It is not: its text says so."""
    begins_again: bool = False
    """Its number may begin again at 0, as that of a bar of one epoch does."""


@dataclass(slots=True, kw_only=True)
class Series:
    """Lines of one form that belong together."""

    form: str
    line: str
    """The line from which it was recognised."""
    first: int
    """Its first number."""
    last: LineState
    """Its last one."""
    step: int | None
    """Its highest number. None: it begins again with each epoch, so that it shows no steps."""
    sure: bool
    """See `LineState.sure`."""
    born: float
    moved: float
    """When it last moved, on the clock of `read`."""
    metrics: Metrics = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """It has reached its end."""
        return self.last.total is not None and self.last.number >= self.last.total


@dataclass(slots=True, kw_only=True)
class OutputReader:
    """Reads the output of one rank in one attempt, line by line."""

    patterns: Mapping[int, re.Pattern[str]] = field(default_factory=dict)
    """The user's, by number; tried before the forms."""
    forms: bool = True
    """Whether the known forms are tried."""
    training: Series | None = None
    """The series that is taken as the training; None: none was found yet."""
    moves: int = 0
    """Signs of life until now."""
    records: list[tuple[int, Metrics]] = field(default_factory=list)
    """Steps with their metrics since the last `taken`."""
    _series: dict[tuple[str, ...], Series] = field(default_factory=dict)
    _epoch: int | None = None
    """Keras prints it on a line of its own."""
    _last: tuple[int, Metrics] | None = None
    """The newest record: a bar is drawn several times."""
    _held: Metrics = field(default_factory=dict)
    """Metrics of the Trainer, until its bar is drawn again with their step."""

    def read(self, line: str, now: float) -> None:
        """Take one line, or one state of a bar, without its end; `now` in seconds, rising."""
        text = without_escapes(line).replace("\b", "").rstrip()
        state = self._by_pattern(text) or (self._by_form(text) if self.forms else None)
        if state is not None:
            self._take(state, text, now)

    def taken(self) -> list[tuple[int, Metrics]]:
        """The records, which are forgotten here."""
        records, self.records = self.records, []
        return records

    def _take(self, state: LineState, text: str, now: float) -> None:
        series = self._series.get(state.key)
        if series is None:
            series = self._new(state, text, now)
        elif state.number != series.last.number:
            self.moves += 1
            if state.begins_again and series.complete and state.number < series.last.number:
                series.step = None
            elif series.step is not None:
                series.step = max(series.step, state.number)
            series.last, series.moved = state, now
            series.sure = series.sure or state.sure
            self._choose(series, state, now)
        if series is self.training:
            self._record(series, state)

    def _new(self, state: LineState, text: str, now: float) -> Series:
        line, number = text.strip()[:LINE_WIDTH], state.number
        new = Series(
            form=state.form, line=line, first=number, last=state, step=number, sure=state.sure,
            born=now, moved=now,
        )  # fmt: skip
        while len(self._series) >= MOST_SERIES:
            oldest = next(key for key, one in self._series.items() if one is not self.training)
            del self._series[oldest]
        self._series[state.key] = new
        if self.training is None and not state.aside:
            self.training = new
        return new

    def _choose(self, moving: Series, state: LineState, now: float) -> None:
        """Whether the series that moves is the training."""
        current = self.training
        if state.aside or moving is current:
            return
        if current is None or (moving.sure and not current.sure):
            self.training = moving
        elif moving.sure or not current.sure:
            after = current.complete and moving.born >= current.moved
            stands = now - current.moved > STANDS and moving.moved - moving.born > STANDS
            if after or stands:
                self.training = moving

    def _record(self, series: Series, state: LineState) -> None:
        found = {**self._held, **state.metrics}
        self._held = {}
        series.metrics = dict(list({**series.metrics, **found}.items())[:MOST_METRICS])
        record = (state.number, found)
        if not found or series.step is None or state.number < series.step or record == self._last:
            return
        self.records.append(record)
        self._last = record

    # ------------------------------------------------------------ lines

    def _by_pattern(self, text: str) -> LineState | None:
        for number in self.patterns:
            if (match := self.search(number, text)) is not None:
                groups = match.groupdict()
                metrics = dict(_values((n, v) for n, v in groups.items() if n not in _PLACES))
                found = _state(("pattern",), f"pattern {number}", groups, metrics, sure=True)
                if found is not None:
                    return found
        return None

    def search(self, number: int, text: str) -> re.Match[str] | None:
        """Where a user's pattern occurs; the process that runs this limits its time."""
        return self.patterns[number].search(text)

    def _by_form(self, text: str) -> LineState | None:
        for hint, bar in (("%|", _BAR), ("% ", _THIN_BAR)):
            if hint in text and (match := bar.search(text)) is not None:
                return self._bar(text, match)
        for form, (hint, pattern) in FORMS.items():
            if hint in text and (match := re.search(pattern, text)) is not None:
                metrics = metrics_in(text[match.end() :])
                return _state((form,), form, match.groupdict(), metrics, sure=True)
        if (epoch := _KERAS_EPOCH.match(text)) is not None:
            self._epoch = _whole(epoch[1])
        elif self._epoch is not None and (match := _KERAS.match(text)) is not None:
            places = {**match.groupdict(), "epoch": str(self._epoch)}
            metrics, key = metrics_in(text[match.end() :]), ("Keras", match["batches"])
            return _state(key, "Keras", places, metrics, sure=True)
        elif _DICTIONARY.match(text) is not None:
            self._dictionary(text)
        return None

    def _bar(self, text: str, match: re.Match[str]) -> LineState | None:
        before, rest, places = text[: match.start()].rstrip(), match["rest"], match.groupdict()
        epoch = _EPOCH_OF_BAR.search(before)
        metrics = metrics_in(before[epoch.end() :] if epoch is not None else before)
        metrics |= metrics_in(rest)
        form = "tqdm"
        if epoch is not None:
            places = {"epoch": epoch[1] or epoch[2], "batch": places["step"]}
            places["batches"] = match["total"]
            form = "Lightning" if before.startswith("Epoch ") else form
        # Columns that are aligned have more spaces where a number is shorter.
        key = ("bar", match["total"], " ".join(_VALUE.sub("#", before).split())[:40])
        sure = epoch is not None or _shows_loss(metrics)
        aside = _ASIDE.search(before) is not None or _ASIDE.search(rest) is not None
        again = epoch is None
        return _state(key, form, places, metrics, sure=sure, aside=aside, begins_again=again)

    def _dictionary(self, text: str) -> None:
        """The Trainer's metrics: its bar, which is drawn again after them, has their step."""
        found = dict(islice(_values(_ITEM.findall(text)), MOST_METRICS))
        if self.training is not None and found:
            self._held.update(found)
            if _shows_loss(found) and "eval_loss" not in found:
                self.training.form, self.training.sure = "Hugging Face", True


_PLACES = ("step", "epoch", "batch", "batches", "total")


def _state(
    key: tuple[str, ...], form: str, places: Mapping[str, str | None], metrics: Metrics,
    *, sure: bool, aside: bool = False, begins_again: bool = False,
) -> LineState | None:  # fmt: skip
    """None: its numbers are no whole numbers."""
    number, found = _whole(places.get("step")), [_whole(places.get(name)) for name in _PLACES[1:4]]
    epoch, batch, batches = found
    if number is None and epoch is not None and batch is not None and batches is not None:
        number = epoch * batches + batch
    if number is None or len(str(number)) > MOST_DIGITS:
        return None
    return LineState(
        key=key, form=form, number=number, total=_whole(places.get("total")), metrics=metrics,
        sure=sure, aside=aside, begins_again=begins_again,
    )  # fmt: skip


def metrics_in(text: str) -> Metrics:
    """The numbers with a name before them, by name with `_` for spaces; at most MOST_METRICS."""
    found = islice(_METRIC.finditer(text), MOST_METRICS)
    return dict(_values((match[1].replace(" ", "_")[:64], match[2]) for match in found))


def _values(items: Iterable[tuple[str, str | None]]) -> Iterator[tuple[str, int | float]]:
    """Those whose text is a number."""
    for name, text in items:
        if text is not None and (value := _value(text)) is not None:
            yield name, value


def _shows_loss(metrics: Metrics) -> bool:
    return any("loss" in name.lower() for name in metrics)


def _whole(text: str | None) -> int | None:
    found = text is not None and len(text) <= MOST_DIGITS and text.isascii() and text.isdecimal()
    return int(text) if found and text is not None else None


def _value(text: str) -> int | float | None:
    whole = _whole(text)
    if whole is not None:
        return whole
    try:
        return float(text) if len(text) <= 40 else None
    except ValueError:
        return None
