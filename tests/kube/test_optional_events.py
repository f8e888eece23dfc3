"""Events that the operator may have no right to write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from trainrun_operator.kube import events
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Forbidden
from trainrun_operator.kube.events import EventRecorder

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n7", "uid": "n7"}}


class Refusing:
    """An API server that refuses the first so many events."""

    def __init__(self, times: int) -> None:
        self.left, self.paths, self.tries = times, list[str](), 0

    async def post(self, path: str, _body: dict[str, Any]) -> dict[str, Any]:
        self.tries += 1
        if self.left > 0:
            self.left -= 1
            raise Forbidden("no right", status=403, reason="Forbidden")
        self.paths.append(path)
        return {}


async def tell(recorder: EventRecorder, *messages: str) -> None:
    for message in messages:
        recorder.record(
            about=NODE, kind="Warning", reason="Lost", message=message, time=datetime.now(UTC)
        )
    await recorder.flush()


async def test_the_right_that_is_missing_is_waited_for_once_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(events, "PATIENCE_IF_FORBIDDEN", 0.05)
    monkeypatch.setattr(events, "FIRST_PAUSE", 0.06)
    api = Refusing(1000)
    recorder = EventRecorder(cast("KubeApi", api), optional=True)
    await tell(recorder, "one")
    tried = api.tries
    assert tried > 1
    await tell(recorder, "two", "three")
    assert api.tries == tried + 2
    assert caplog.text.count("event Lost was refused: no right") == 1


async def test_once_the_right_is_given_events_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATIENCE_IF_FORBIDDEN", 0.0)
    api = Refusing(1)
    recorder = EventRecorder(cast("KubeApi", api), optional=True)
    await tell(recorder, "one", "two")
    assert api.paths == ["/api/v1/namespaces/default/events"]
