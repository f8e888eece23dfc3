"""Kubernetes Events (core/v1), as `kubectl describe` shows them.

Layer: kube. Invariants: recording never blocks and never fails; an event recorded twice, as by
two successive leaders, is written once; the order is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainrun._common.backoff import Backoff
from trainrun._common.text import shortened
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    Unauthorized,
    Unavailable,
)

COMPONENT = "trainrun-operator"

QUEUE_LIMIT = 1000
"""Events that wait while the API server is down; beyond this the oldest are dropped."""
PATIENCE = 600.0
"""Seconds after which an event that could not be written is dropped."""
PATIENCE_IF_FORBIDDEN = 20.0
"""The same if permission was denied: an API server that has just started refuses everything until
it has read the roles."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries."""
LONGEST_MESSAGE = 1024
"""Characters; longer ones are cut."""

_NAMED_BY = ("namespace", "name", "uid", "resourceVersion")

_log = logging.getLogger(__name__)

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queued:
    path: str
    body: Object
    deadline: float
    """By the event loop's clock."""


class EventRecorder:
    """Writes events in order; `run` it in its own task."""

    def __init__(self, api: KubeApi, *, instance: str = "", optional: bool = False) -> None:
        """`instance`: the writer's name, by default the host's. `optional`: the permission to write
        events may be missing; that is logged once, and only the first event waits for it."""
        self._api = api
        self._instance = instance or socket.gethostname()
        self._queue: deque[_Queued] = deque()
        self._more = asyncio.Event()
        self._writing = asyncio.Lock()
        self._given_up = 0
        self._optional = optional
        self._has_no_right = False

    def record(self, about: Raw, kind: str, reason: str, message: str, *, time: datetime) -> None:
        """Queue an event; returns at once. `about` is the object as it was read; `kind` is Normal
        or Warning, `time` is in UTC."""
        if len(self._queue) >= QUEUE_LIMIT:
            self._queue.popleft()
            self._given_up += 1
        message = shortened(message, LONGEST_MESSAGE)
        body = _event(about, kind, reason, message, time=time, instance=self._instance)
        deadline = asyncio.get_running_loop().time() + PATIENCE
        path = f"/api/v1/namespaces/{_namespace(about)}/events"
        self._queue.append(_Queued(path=path, body=body, deadline=deadline))
        self._more.set()

    async def run(self) -> None:
        """Write recorded events; never returns."""
        while True:
            await self._more.wait()
            self._more.clear()
            await self._write_all()

    async def flush(self, timeout: float = 2.0) -> None:
        """Write all queued events within `timeout` seconds; `run` may have ended."""
        try:
            async with asyncio.timeout(timeout):
                await self._write_all()
        except TimeoutError:
            _log.warning("%d events were not written", len(self._queue))

    async def _write_all(self) -> None:
        async with self._writing:
            while self._queue:
                first = self._queue[0]
                await self._write(first)
                # It may have been dropped meanwhile, because too many wait.
                if self._queue and self._queue[0] is first:
                    self._queue.popleft()
            if self._given_up:
                _log.warning("%d events were dropped: too many were waiting", self._given_up)
                self._given_up = 0

    async def _write(self, event: _Queued) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        begun = loop.time()
        while True:
            try:
                await self._api.post(event.path, event.body)
            except AlreadyExists:
                return  # the answer to an earlier try got lost
            except (Unavailable, Unauthorized) as error:
                if loop.time() > event.deadline:
                    _log.warning("an event was dropped: %s", error)
                    return
            except KubeError as error:
                # The namespace is being deleted, or the event is wrong: a retry cannot help.
                lasting = not isinstance(error, Forbidden) or "being terminated" in error.message
                patience = 0.0 if self._has_no_right else PATIENCE_IF_FORBIDDEN
                if lasting or loop.time() >= begun + patience:
                    self._refused(event, error)
                    return
            else:
                self._has_no_right = False
                return
            await asyncio.sleep(backoff.next())

    def _refused(self, event: _Queued, error: KubeError) -> None:
        if not self._has_no_right:
            _log.warning("event %s was refused: %s", event.body["reason"], error)
        self._has_no_right = self._optional and isinstance(error, Forbidden)


def _namespace(about: Raw) -> str:
    """Events about objects without a namespace, such as nodes, live in `default`, where
    `kubectl describe` finds them."""
    return about["metadata"].get("namespace") or "default"


def _event(
    about: Raw, kind: str, reason: str, message: str, *, time: datetime, instance: str
) -> Object:
    metadata = about["metadata"]
    # The name holds the time and a digest of the content: a second write is refused, and lists by
    # name, which `kubectl describe` shows, keep the order within a second.
    content = "\0".join((metadata["uid"], kind, reason, message, time.astimezone(UTC).isoformat()))
    microseconds = round(time.timestamp() * 1e6)
    name = f"{metadata['name']}.{microseconds:x}.{hashlib.sha256(content.encode()).hexdigest()[:8]}"
    moment = time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": _namespace(about)},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            **{key: metadata[key] for key in _NAMED_BY if key in metadata},
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
    }
