"""Progress that a framework posts by itself, in Kubeflow Trainer's protocol.

Layer: agent. A small server on the loopback address, for one attempt of slot 0, with a token that
rank 0 finds in a file. The framework waits for the answer in its training loop, so every connection
is answered at once or closed. Posts are only displayed and decide nothing.

A post holds a percentage, an estimate of the time left and metrics, among them `current_step` and
`total_steps` from a Hugging Face Trainer. The agent makes its own estimate: theirs divides the time
since the process start by all steps of the run, so after a resume it is far too short.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainrun.agent import background
from trainrun.agent.exchange.http import RequestHead, answer_head, read_head
from trainrun.contract import metrics
from trainrun.contract.evidence import Posted
from trainrun.contract.wire import LARGEST_INTEGER, LARGEST_NUMBER

LOG = logging.getLogger("trainrun.agent")

STEP, TOTAL = "current_step", "total_steps"
"""The metrics that hold the progress."""
WHOLE = 100
"""The percentage that a Trainer posts when it ends."""


class MalformedPost(ValueError):
    """The post violates the protocol; the message says what was expected."""


@dataclass(slots=True, kw_only=True)
class Posting:
    """The progress posted in one attempt, and the estimated time left."""

    posted: Posted | None = None
    """The current progress; None before the first post."""
    _first: tuple[float, float] | None = None
    """Time and progress (0 to 1) from which the estimate counts."""

    def take(self, body: bytes, now: float) -> None:
        """Take a post into account. Raises MalformedPost."""
        percent, values = _read(body)
        step, total = _whole(values.pop(STEP, None)), _whole(values.pop(TOTAL, None))
        before = self.posted or Posted()
        if step is None and total is not None and percent == 0:
            before, self._first = Posted(), None  # a training begins, perhaps a second one
        step = before.step if step is None else step
        total = before.total if total is None else total
        done = _done(step, total, percent)
        ended = percent == WHOLE
        self.posted = Posted(
            step=step,
            total=total,
            percent=WHOLE if ended else None if done is None else int(WHOLE * done),
            metrics=_metrics(values) or before.metrics,
            remaining=0.0 if ended else None if done is None else self._remaining(done, now),
        )

    def _remaining(self, done: float, now: float) -> float | None:
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        since, begin = self._first
        if done <= begin:
            return None
        left = (1.0 - done) / (done - begin) * (now - since)
        return round(left, 1) if left <= LARGEST_NUMBER else None


def _read(body: bytes) -> tuple[int | None, dict[str, object]]:
    """The percentage, and the metrics."""
    try:
        status = json.loads(body)["trainerStatus"]
        metrics_ = {m["name"]: m["value"] for m in status.get("metrics") or ()}
        percent = status.get("progressPercentage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedPost(
            '{"trainerStatus": {"progressPercentage", "metrics"}} was expected'
        ) from error
    valid = isinstance(percent, int) and 0 <= percent <= WHOLE
    return percent if valid else None, {str(name): value for name, value in metrics_.items()}


def _done(step: int | None, total: int | None, percent: int | None) -> float | None:
    """How much of the training is done, 0 to 1. The percentage counts only without steps: a Trainer
    that resumes starts at 0 per cent."""
    if total is not None:
        return None if step is None or total == 0 else min(step / total, 1.0)
    return None if percent is None else percent / WHOLE


def _whole(value: object) -> int | None:
    number = _number(value)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 <= number <= LARGEST_INTEGER else None


def _metrics(values: Mapping[str, object]) -> dict[str, Any]:
    read = {
        name: number for name, value in values.items() if (number := _number(value)) is not None
    }
    found: dict[str, Any] = json.loads(metrics.to_json(read))
    return found


def _number(value: object) -> metrics.Metric | None:
    """A metric, which is posted as text."""
    if not isinstance(value, str):
        return value if isinstance(value, (int, float)) else None
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


LOOPBACK = "127.0.0.1"
LARGEST_HEAD, LARGEST_BODY = 8 * 1024, 64 * 1024
"""Bytes of a post."""
LONGEST_NUMBER = 9
"""Maximum digits of a Content-Length."""
PATIENCE = 4.0
"""Seconds for a post to arrive; a Trainer waits five for its answer."""
MOST = 8
"""Maximum connections at a time: one process posts, at most every five seconds."""


class ProgressServer:
    """The server of one attempt."""

    def __init__(self, token_file: Path, *, news: Callable[[], None]) -> None:
        """`news` is called after each accepted post."""
        self._token_file = token_file
        self._token = secrets.token_hex(16)
        self._news = news
        self._posting = Posting()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self.url = ""
        """Where it accepts posts; empty: not serving."""

    @property
    def posted(self) -> Posted | None:
        """The progress posted until now."""
        return self._posting.posted

    def open(self) -> None:
        """Start serving; if that fails, frameworks cannot post, and nothing else changes."""
        try:
            file = os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(file, "w") as out:
                out.write(self._token)
            self._listener = socket.create_server((LOOPBACK, 0))
        except OSError as error:
            LOG.info("cannot accept progress that a framework posts: %s", error)
            return
        self.url = f"http://{LOOPBACK}:{self._listener.getsockname()[1]}/"
        background.run(self._listen(self._listener))

    def close(self) -> None:
        """Take no more posts."""
        if self._server is not None:
            self._server.close()
        if self._listener is not None:
            self._listener.close()
        for writer in self._open:
            writer.close()

    async def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._server = await asyncio.start_server(
                self._serve, sock=listener, limit=LARGEST_HEAD
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._open) < MOST:
                self._open.add(writer)
                status = await asyncio.wait_for(self._answer(reader), PATIENCE)
                writer.write(answer_head(status, 0))
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # the client disconnected, or sent no valid request
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        """Take one post; returns the status of the answer."""
        head = await read_head(reader)
        if not head.has_token(self._token):
            return 401
        length = _length(head)
        if length is None:
            return 400
        if length > LARGEST_BODY:
            return 413
        try:
            self._posting.take(await reader.readexactly(length), time.monotonic())
        except MalformedPost as error:
            LOG.info("ignored a malformed progress post: %s", error)
            return 400
        self._news()
        return 200


def _length(head: RequestHead) -> int | None:
    length = head.fields.get("content-length", "")
    sound = head.method == "POST" and length.isdecimal() and len(length) <= LONGEST_NUMBER
    return int(length) if sound else None
