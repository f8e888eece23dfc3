"""One run of a drill on this machine, from fresh storage to what was seen of it.

Layer: cli.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.seeing import seen
from trainrun_operator.cli.drilling.store import AWAY, DrillStore, spoil_newest
from trainrun_operator.cli.drilling.watching import Watcher
from trainrun_operator.cli.local_run import LocalRun
from trainrun_operator.cli.preparation import open_run
from trainrun_operator.cli.sources import StorageSource
from trainrun_operator.runtime.news import Everyone

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.scenarios import Scenario
    from trainrun_operator.cli.preparation import Preparation

ENDING = 20.0
"""Seconds that a run may take to end once it is told to."""


class Trial:
    """One run."""

    def __init__(
        self,
        prepared: Preparation,
        store: DrillStore,
        scenario: Scenario | None,
        until: int | None,
        share: float,
    ) -> None:
        prepared.place.folder.parent.mkdir(exist_ok=True)
        self._prepared = prepared
        self._store = store
        self._scenario = scenario
        self._spoilt: int | None = None
        self._watcher = Watcher(
            until=until,
            share=share,
            attempt=1 + len(prepared.faults),
            ready=lambda: not self._run.never_struck,
            enough=lambda: self._run.end(),  # noqa: PLW0108 - there is no run yet
            began=lambda: len(self._run.never_struck) < len(prepared.faults),
            on_strike=self._on_strike,
        )
        self._run = LocalRun(
            prepared,
            open_run(prepared).stored,
            events=Everyone([]),
            heard=self._watcher.hear,
            save_on_interrupt=False,
        )

    def run(self, seconds: float) -> Course:
        """At most so long. Raises InvalidSpec, StoreError, KeyboardInterrupt."""
        begun = time.monotonic()
        try:
            status = asyncio.run(self._bounded(seconds))
        finally:
            self._store.bring_back()
        if self._run.interrupted:
            raise KeyboardInterrupt
        return seen(
            self._prepared,
            status,
            self._watcher,
            struck=bool(self._prepared.faults) and not self._run.never_struck,
            spoilt=self._spoilt,
            seconds=time.monotonic() - begun,
        )

    async def _bounded(self, seconds: float) -> TrainRunStatus:
        leading = asyncio.create_task(self._run.lead(say=lambda _text: None))
        for limit, then in ((seconds, self._run.end), (ENDING, self._run.abandon)):
            done, _ = await asyncio.wait({leading}, timeout=limit)
            if done:
                break
            self._store.bring_back()
            then()
        return await leading

    def _on_strike(self) -> None:
        """Before anything is decided: the run has heard of the strike as we have."""
        kind = self._scenario.store if self._scenario is not None else "Kept"
        if kind == "Away":
            self._store.take_away()
            asyncio.get_running_loop().call_later(AWAY, self._store.bring_back)
        elif kind == "SpoilNewest":
            uri = self._prepared.run.spec.storage.uri
            source = StorageSource(
                name=self._prepared.name, storage=uri, place=self._prepared.place
            )
            folder = self._store.link / self._prepared.name
            self._spoilt = spoil_newest(source.checkpoints(), folder)
