"""The operator as a process: `python -m trainrun_operator.cluster.app`.

Layer: cluster, composition root. kopf runs `handlers` in a thread with its own event loop: a watch
error ends kopf and every task of its loop, and that must not end the runs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import threading

import kopf
import uvloop

from trainrun.errors import InvalidSpec
from trainrun_operator.cluster import handlers  # noqa: F401 - which registers them with kopf
from trainrun_operator.cluster.runs import Runs
from trainrun_operator.cluster.settings import Settings, read_settings
from trainrun_operator.kube.informer import EVERYWHERE
from trainrun_operator.runtime.line_writers import non_blocking

PAUSE = (0.5, 5.0)
"""Seconds until an ended watch restarts, drawn from this range."""

LOOK_EVERY = 0.5
"""Seconds between two checks of which namespaces can be watched."""

GARBAGE = 10_000
"""Net new objects that trigger a collection of the youngest generation. Requests and passes leave
almost no cycles behind; with Python's 700 a seventh of the cost of 2,000 agents was this search."""

_log = logging.getLogger("trainrun_operator")


class KopfThread:
    """kopf with our handlers, restarted whenever it ends, with or without an error.

    It watches only what can be listed: one namespace that refuses would end it, and if the CRD is
    missing at its start, it would never watch anything.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch within about a second."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            namespaces = self._runs.readable
            try:
                if namespaces:
                    asyncio.run(self._watch(namespaces))
            except Exception:  # noqa: BLE001 - kopf ends on watch errors that may pass
                _log.exception("the watch of TrainRuns ended; starting it again")
            else:
                if not self._is_over(namespaces):
                    _log.error("the watch of TrainRuns ended without an error; starting it again")
            self._stop.wait(random.uniform(*PAUSE))

    async def _watch(self, namespaces: frozenset[str]) -> None:
        over = asyncio.Event()

        async def mind() -> None:
            while not self._is_over(namespaces):
                await asyncio.sleep(LOOK_EVERY)
            over.set()

        minding = asyncio.create_task(mind())
        try:
            await kopf.operator(
                memo=kopf.Memo(runs=self._runs),
                standalone=True,
                clusterwide=EVERYWHERE in namespaces,
                namespaces=sorted(namespaces - {EVERYWHERE}),
                stop_flag=over,
            )
        finally:
            minding.cancel()

    def _is_over(self, namespaces: frozenset[str]) -> bool:
        """Whether the watch of these namespaces must end."""
        return self._stop.is_set() or not namespaces or self._runs.readable != namespaces


async def serve(settings: Settings) -> int:
    """Run an operator with these settings until a signal or the loss of leadership."""
    runs = await Runs.open(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, runs.stop)
    watching = KopfThread(runs)
    watching.start()
    try:
        return await runs.lead()
    finally:
        await asyncio.to_thread(watching.stop)


@non_blocking(patience=1.0)
def main() -> int:
    """Run the operator with the settings of the environment; returns its exit code."""
    try:
        settings = read_settings(os.environ)
    except InvalidSpec as error:
        sys.stderr.write(f"trainrun operator: {error}\n")
        return 2
    log_format = kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL
    kopf.configure(log_format=log_format)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # At every start it warns that it does not handle signals; we handle them.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    # Imported objects stay: searching them for garbage repeatedly costs a twentieth of a large
    # gang's start and blocks everything for a tenth of a second each time.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    # With asyncio's own loop a TLS connection needs six times the memory (make bench-connections).
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main())
