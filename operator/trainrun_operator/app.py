"""The operator as a process: `python -m trainrun_operator.app`.

Layer: app, composition root, and the only module that imports kopf. kopf watches TrainRuns in a
thread with a loop of its own: when its watch meets an error it ends and takes every task of its
loop with it, and must not take ours. What it may lose (a deletion across a 410) the operator's
relist finds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resource import GROUP, PLURAL, VERSION
from trainrun_operator.runtime.metrics import Metrics
from trainrun_operator.runtime.operator import Operator
from trainrun_operator.runtime.settings import Settings, read_settings
from trainrun_operator.worlds.kubernetes.api import KubeApi

_log = logging.getLogger("trainrun_operator")

OnEvent = Callable[[str | None, Mapping[str, Any]], None]
"""(type, object) of a watch event, called in the watch's thread; the type is None in a list."""


class TrainRunWatch:
    """kopf's watch of TrainRuns, in a thread."""

    def __init__(self, namespaces: tuple[str, ...], on_event: OnEvent) -> None:
        """`namespaces`: those to watch, none for all."""
        self._namespaces = namespaces
        self._on_event = on_event
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch, within a second or so."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._watch())
            except Exception:  # noqa: BLE001 - kopf ends on watch errors that time may heal
                _log.exception("the watch of TrainRuns ended; starting it again")
                time.sleep(random.uniform(0.5, 5.0))

    async def _watch(self) -> None:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_log_in)
        # Only on.event: it leaves no finalizer and no annotation on the object.
        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(self._handle)
        await kopf.operator(
            registry=registry,
            settings=_settings(),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
        )

    async def _handle(self, event: Mapping[str, Any], **_: object) -> None:
        self._on_event(event["type"], event["object"])


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.watching.server_timeout = 300
    settings.watching.reconnect_backoff = 0.5
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 1
    # One look at what the API server serves, and no watch of all CRDs and namespaces: that would
    # take rights which we have no other use for.
    settings.scanning.disabled = True
    return settings


class Backoffs:
    """Pauses without end, in seconds, with jitter: an API server that is away must not end us."""

    def __iter__(self) -> Backoffs:
        """Begin with short ones."""
        self._next = 0.5
        return self

    def __next__(self) -> float:
        """The next pause."""
        pause, self._next = self._next, min(self._next * 2, 30.0)
        return pause * random.uniform(0.5, 1.0)


def _log_in(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


async def serve(settings: Settings) -> int:
    """Run an operator with these settings until a signal or the loss of leadership."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    metrics = Metrics()
    api = await KubeApi.connect(observe_call=metrics.api_call)
    operator = Operator(settings, api=api, metrics=metrics)

    def on_event(kind: str | None, raw: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(operator.trainrun_changed, kind, dict(raw))

    watch = TrainRunWatch(settings.namespaces, on_event)
    starting = asyncio.create_task(_start_once_served(watch, operator.listed))
    try:
        return await operator.run(stopped)
    finally:
        starting.cancel()
        await asyncio.to_thread(watch.stop)


async def _start_once_served(watch: TrainRunWatch, listed: asyncio.Event) -> None:
    """kopf looks once for the CRD, so it must be there by then."""
    await listed.wait()
    watch.start()


def main() -> int:
    """Run the operator of this environment; returns its exit code."""
    try:
        settings = read_settings(os.environ)
    except InvalidSpec as error:
        sys.stderr.write(f"trainrun operator: {error}\n")
        return 2
    log_format = kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL
    kopf.configure(log_format=log_format)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns of every start that signals are not its business; they are ours.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    return asyncio.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main())
