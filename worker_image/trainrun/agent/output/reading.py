"""The steps that the output of an attempt shows, read by a process of its own (`matcher`).

Layer: agent. Invariants: the training and the agent never wait for that process; what it cannot
take is dropped and counted. It is started again when it ends by itself, but not for ever. After the
processes of the attempt have ended it reads the rest and ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import trainrun
from trainrun.agent.output.matcher import HEAD, LONGEST_MATCH
from trainrun.agent.training.step_clock import StepClock
from trainrun.contract import metrics
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import RunSettings
from trainrun.contract.evidence import OutputProgress
from trainrun.contract.masking import masked, masked_object

LOG = logging.getLogger("trainrun.agent")

MOST_WAITING = 1 << 20
"""Bytes of output that wait for the process; what comes then is dropped."""
STARTS = 4
"""How often it is started in one attempt."""
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from trainrun.agent.output.matcher import main; main()"
)
PROBLEM = "OutputUnread"
"""Type of the problems."""

Record = Callable[[int, Mapping[str, object]], None]
"""Called with each step that shows metrics, and these."""


@dataclass(slots=True, kw_only=True)
class _RankState:
    """What the output of one rank shows, and when it moved."""

    clock: StepClock = field(default_factory=StepClock)
    series: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `OutputProgress`; empty: no line was recognised."""
    moves: int = 0
    began: float | None = None
    """When it first moved, on the monotonic clock."""
    moved: float = 0.0
    """When it last did."""


@dataclass(slots=True, kw_only=True)
class OutputReading:
    """Reads the output of some ranks of one attempt; of one agent."""

    forms: bool
    """Whether the known forms are tried."""
    patterns: Mapping[int, Mapping[int, str]]
    """By rank that is read, the user's patterns by number."""
    record: Record
    news: Callable[[], None]
    """Called when a step, a sign of life or a problem is new."""
    limit: float = LONGEST_MATCH
    """Seconds of CPU that a pattern may take for a line."""
    problem: Problem | None = None
    pid: int = 0
    """Of the process; 0: there is none."""
    dropped: int = 0
    """Lines that were not read."""
    _channel: socket.socket | None = None
    _starts: int = 0
    _waiting: bytearray = field(default_factory=bytearray)
    _gaps: set[int] = field(default_factory=set)
    """Ranks whose last output was dropped."""
    _received: bytes = b""
    _ranks: dict[int, _RankState] = field(default_factory=dict)
    _ended: bool = False

    def tap(self, rank: int) -> Callable[[bytes], None] | None:
        """What to call with each piece of this rank's output; None: it is not read."""
        if rank not in self.patterns:
            return None
        return lambda piece: self._take(rank, piece)

    def start(self, now: float) -> None:
        """The processes of the attempt are about to start, `now` on the monotonic clock."""
        for rank in self.patterns:
            self._ranks[rank] = _RankState()
            self._ranks[rank].clock.start(now)
        if self.patterns:
            self._start()

    def tick(self, now: float) -> None:
        """Called about once a second."""
        for state in self._ranks.values():
            state.clock.tick(now)

    def finish(self) -> None:
        """All processes of the attempt have ended: read what is left."""
        self._ended = True
        if self.dropped:
            LOG.warning("%d lines of output came too fast to be read for steps", self.dropped)
        self._flush()

    def close(self) -> None:
        """The next attempt begins."""
        self._ended = True
        self._disconnect()

    def progress(self, now: float) -> OutputProgress | None:
        """Of the lowest rank whose output shows a training; None: none does."""
        for rank, state in sorted(self._ranks.items()):
            if state.series:
                output = OutputProgress(
                    rank=rank,
                    **state.series,
                    began=None if state.began is None else now - state.began,
                    moved=None if state.began is None else now - state.moved,
                    owes=state.clock.owes(now),
                    slowest=round(state.clock.slowest, 3),
                )
                metrics_ = masked_object(_safe(output.metrics))
                return replace(output, line=masked(output.line), metrics=metrics_)
        return None

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        rules = json.dumps({"forms": self.forms, "limit": self.limit, "patterns": self.patterns})
        root = str(Path(trainrun.__file__).parent.parent)
        descriptor = str(theirs.fileno())
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, root, descriptor, rules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            why = f"the process that reads steps from output cannot be started: {error}"
            self._fails("NotStarted", why)
            return
        finally:
            theirs.close()
        child.returncode = 0  # `reap` reads its status
        self.pid, self._starts = child.pid, self._starts + 1
        for state in self._ranks.values():
            state.moves = 0
        ours.setblocking(False)  # noqa: FBT003
        self._channel = ours
        asyncio.get_running_loop().add_reader(ours, self._receive)

    def _take(self, rank: int, piece: bytes) -> None:
        if self._channel is None:
            return
        if len(self._waiting) > MOST_WAITING:
            self.dropped += piece.count(b"\n")
            self._gaps.add(rank)
            return
        self._waiting += HEAD.pack(len(piece), rank, rank in self._gaps) + piece
        self._gaps.discard(rank)
        self._flush()

    def _flush(self) -> None:
        """Send what waits; the rest when there is room."""
        if self._channel is None:
            return
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                del self._waiting[: self._channel.send(self._waiting)]
            loop.remove_writer(self._channel)
            if self._ended:
                self._channel.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            loop.add_writer(self._channel, self._flush)
        except OSError:
            self._died()

    def _receive(self) -> None:
        if self._channel is None:
            return
        try:
            data = self._channel.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._died()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._note(json.loads(line), time.monotonic())
        self.news()

    def _note(self, message: Mapping[str, Any], now: float) -> None:
        state = self._ranks[message["rank"]]
        if message["moves"] > state.moves:
            state.began, state.moved = now if state.began is None else state.began, now
            state.clock.stepped(now)
        state.moves = message["moves"]
        series = message.get("series", state.series)
        if series.get("form") != state.series.get("form"):
            where = message["rank"], series["form"], series["line"]
            LOG.info("steps are read from the output of rank %d: form %s, line %r", *where)
        state.series = series
        for number, found in message["records"]:
            self.record(number, _safe(found))
        for number in message["givenUp"]:
            self._fails(
                "PatternTooSlow",
                f"pattern {number} of spec.progress.patterns took more than a second for a line "
                "three times and is left out until the next attempt. Write it without repetitions "
                "of repetitions, such as (a+)+",
            )

    def _died(self) -> None:
        self._disconnect()
        if self._ended:
            return
        if self._starts < STARTS:
            self._start()
        else:
            self._fails(
                "ReaderEnded",
                f"the process that reads steps from output ended {self._starts} times; steps are "
                "not read until the next attempt. Look for a pattern that takes long, or for a "
                "lack of memory",
            )

    def _disconnect(self) -> None:
        if self._channel is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        loop.remove_writer(self._channel)
        self._channel.close()
        self._channel, self.pid = None, 0
        self._waiting.clear()
        self._received = b""
        self._gaps.update(self.patterns)

    def _fails(self, reason: str, message: str) -> None:
        if self.problem is None:
            LOG.warning("%s", message)
            self.problem = Problem(type=PROBLEM, reason=reason, message=message)
            self.news()


def _safe(found: Mapping[str, object]) -> dict[str, object]:
    """Metrics as JSON has them: `nan` may be among them."""
    safe: dict[str, object] = json.loads(metrics.to_json(found))
    return safe


def reading_of(
    settings: RunSettings,
    ranks: tuple[int, ...],
    world_size: int,
    *,
    record: Record,
    news: Callable[[], None],
) -> OutputReading:
    """The reading of one attempt. The known forms are looked for in the output of rank 0 and of the
    last rank, which is the one that prints in Megatron-LM."""
    patterns: dict[int, dict[int, str]] = {}
    for number, rule in enumerate(settings.output_patterns, 1):
        patterns.setdefault(rule.rank, {})[number] = rule.pattern
    if settings.output_forms:
        for rank in (0, world_size - 1):
            patterns.setdefault(rank, {})
    ours = {rank: found for rank, found in patterns.items() if rank in ranks}
    return OutputReading(forms=settings.output_forms, patterns=ours, record=record, news=news)
