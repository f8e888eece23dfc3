"""The thread in which kopf watches TrainRuns, when kopf ends although nobody has stopped it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import kopf
import pytest

from tests.support.eventually import eventually
from trainrun_operator.cluster import app
from trainrun_operator.cluster.app import KopfThread
from trainrun_operator.cluster.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watches:
    """What stands for `kopf.operator`: each watch ends at once, or when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.watched: list[list[str]] = []
        self.error: Exception | None = None
        self.last = False

    async def __call__(
        self, *, namespaces: list[str], stop_flag: asyncio.Event, **_: object
    ) -> None:
        self.begun += 1
        self.watched.append(namespaces)
        if self.error is not None:
            raise self.error
        if self.last:
            await stop_flag.wait()


@dataclass(kw_only=True)
class Lists:
    """What stands for the runs."""

    readable: frozenset[str] = frozenset({""})


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> Watches:
    watches = Watches()
    monkeypatch.setattr(kopf, "operator", watches)
    return watches


@pytest.fixture
def thread() -> Iterator[KopfThread]:
    thread = KopfThread(cast("Runs", Lists()))
    yield thread
    thread.stop()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("410 Gone"), "the watch of TrainRuns ended; starting it again"),
        (None, "the watch of TrainRuns ended without an error; starting it again"),
    ],
    ids=["by an error", "without one"],
)
def test_a_watch_that_ended_begins_again_after_a_pause(
    watches: Watches,
    thread: KopfThread,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception | None,
    told: str,
) -> None:
    watches.error = error
    pauses = iter([0.0, 0.0, 3600.0])
    monkeypatch.setattr(app.random, "uniform", lambda *_: next(pauses))
    thread.start()

    eventually(lambda: caplog.text.count(told) == 3)
    thread.stop()

    assert watches.begun == 3, "after the third the pause is long, and a stop ends it at once"


def test_only_namespaces_that_can_be_listed_are_watched(
    watches: Watches, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that refuses ended the watch of all, each time that it began again."""
    monkeypatch.setattr(app, "PAUSE", (0.001, 0.002))
    monkeypatch.setattr(app, "LOOK_EVERY", 0.001)
    lists, watches.last = Lists(readable=frozenset()), True
    thread = KopfThread(cast("Runs", lists))
    thread.start()
    lists.readable = frozenset({"a"})
    eventually(lambda: watches.watched == [["a"]])
    lists.readable = frozenset({"b", "a"})
    eventually(lambda: watches.watched == [["a"], ["a", "b"]])
    lists.readable = frozenset({"b"})
    eventually(lambda: watches.watched[2:] == [["b"]])
    thread.stop()
    assert not caplog.records
