"""The page of one sweep: what is known of it, kept up to date while somebody looks, and its view.

Layer: cli. Its log is read on every two seconds. The folders of trials that had trouble are read
again only twice a minute: they may be twenty.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.view import standing
from trainrun_operator.cli.explaining.search_life import (
    SearchLife,
    resume_command_of,
    search_life_of,
)
from trainrun_operator.cli.explaining.search_report import report_of
from trainrun_operator.cli.report.model import (
    Bars,
    Curves,
    Document,
    Section,
    Table,
    TableRow,
    TextLine,
)
from trainrun_operator.cli.report.page import advice, head, section
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.cli.sweeping.trial_text import cells, heads, trial_row
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.run_details import UNUSED
from trainrun_operator.cli.viewing.views import TO_LIST, PageView, dom_id, link, trouble

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion

LOOK, LIVES = 2.0, 30.0
"""Seconds between two looks at the log, and at the folders of trials."""
MOST_TRIALS = 300
"""Trials in the table, the best ones."""


@dataclass(slots=True, kw_only=True)
class SweepDetails:
    """What is known of one sweep."""

    catalog: RunCatalog
    row: RunRow
    life: SearchLife | None = None
    """None: it has no log yet, or it was not read yet."""
    trouble: str = ""
    """Why it could not be read the last time; empty: it could."""
    asked: float = field(default_factory=time.monotonic)
    changes: int = 0
    """Grows with each read."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was read."""
    _log: SweepLog | None = None
    _lives_read: float = -math.inf

    def without_runs(self) -> SweepDetails:
        """What somebody sees from whom the trials' own runs are hidden: the log alone."""
        life = self.life
        return self if life is None else replace(self, life=replace(life, lives={}))

    async def run(self) -> None:
        """Keep it up to date until nobody asks any more."""
        while time.monotonic() - self.asked < UNUSED:
            self.row = self.catalog.current(self.row)
            try:
                self.trouble = await self._read()
            except Exception as error:  # noqa: BLE001 - whatever it has told, the page goes on
                self.trouble = str(error) or type(error).__name__
            self.changes += 1
            self.ready.set()
            await asyncio.sleep(LOOK)

    async def _read(self) -> str:
        """Read on; returns what is wrong with the log."""
        row, watch, version = self.row, self.catalog.watch, None
        if row.kind == "cluster" and watch is not None:
            version = await watch.read_sweep(row.namespace, row.name)
        return await asyncio.to_thread(self._read_log, version)

    def _read_log(self, version: SweepVersion | None) -> str:
        if self._log is None:
            self._log = SweepLog(self.row.source.checkpoints())
        damage = self._log.read_before_damage()
        if self._log.view.sessions:
            sweep = ReadSweep(
                folder=self._log.folder,
                view=self._log.view,
                described=None if version is None else version.sweep,
                version=version,
            )
            if self.life is not None and time.monotonic() - self._lives_read < LIVES:
                self.life = replace(self.life, sweep=sweep)
            else:
                self.life = search_life_of(sweep, resume_command=resume_command_of(sweep))
                self._lives_read = time.monotonic()
        return "" if damage is None else f"only the records before this one: {damage}"


def sweep_view(
    details: SweepDetails, troubles: Iterable[str], *, ids: Mapping[str, str]
) -> PageView:
    """The page of one sweep; `ids`: of the rows of runs, by the URIs of their folders."""
    row, life = details.row, details.life
    name = f"Sweep {row.name}"
    report = Document(name=name, headline=f"{name}: {row.phase} {row.reason}. It has no log yet.")
    parts = {"trouble": trouble((*troubles, *filter(None, [details.trouble])))}
    if life is not None:
        report = report_of(life, pictures=True)
    parts["head"] = f'<div id="head">{head(report)}</div>'
    parts["advice"] = f'<div id="advice">{"".join(advice(report.advice))}</div>'
    drawn = [
        part
        for part in report.sections
        if part.blocks and isinstance(part.blocks[0], Curves | Bars)
    ]
    others = [part for part in report.sections if part not in drawn]
    trials = [] if life is None else [_trials(life, ids)]
    for part in (*drawn, *trials, *others):
        key = dom_id(part.title.partition(" (")[0])
        parts[key] = f'<div id="{key}">{section(part)}</div>'
    return PageView(title=name, parts=parts, before=TO_LIST)


def _trials(life: SearchLife, ids: Mapping[str, str]) -> Section:
    rows = [*_best_first(life, ids)]
    blocks = (Table(heads=heads(life.sweep.objective), rows=tuple(rows[:MOST_TRIALS])),)
    left = len(rows) - MOST_TRIALS
    more = (TextLine(f"and {left:,} more: `trainrun sweep trials` shows all"),) if left > 0 else ()
    return Section(title="Trials, the best first", blocks=(*blocks, *more))


def _best_first(life: SearchLife, ids: Mapping[str, str]) -> Iterator[TableRow]:
    goal = life.sweep.objective
    sign = 1 if goal.goal == "minimize" else -1

    def place(number: int) -> tuple[bool, float, int]:
        own = standing(life.view.trials[number], goal)
        return own is None, 0.0 if own is None else sign * own.value, -number

    for number in sorted(life.view.trials, key=place):
        trial = life.view.trials[number]
        row, uri = trial_row(trial, goal), life.folder_of(trial)
        yield TableRow(
            cells=cells(row),
            below=(row.remark,) if row.remark else (),
            tone="bad" if row.state in ("Errored", "Diverged") else "plain",
            link=link("run", id=ids.get(uri, f"stored:{uri}")),
        )
