"""The page of one sweep: its state, pictures, all trials with links to them, what failed.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from trainrun.sweep.view import standing
from trainrun_operator.cli.explaining.search_life import SearchLife
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
from trainrun_operator.cli.sweeping.trial_text import cells, heads, trial_row
from trainrun_operator.cli.viewing.sweep_details import SweepDetails
from trainrun_operator.cli.viewing.views import PageView, dom_id, link, trouble

MOST_TRIALS = 300
"""Trials in the table, the best ones."""


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
    parts["head"] = f'<div id="head">{head(replace(report, sections=()))}</div>'
    parts["advice"] = f'<div id="advice">{"".join(advice(report.advice))}</div>'
    drawn = [part for part in report.sections if isinstance(part.blocks[0], Curves | Bars)]
    others = [part for part in report.sections if part not in drawn]
    trials = [] if life is None else [_trials(life, ids)]
    for part in (*drawn, *trials, *others):
        key = dom_id(part.title.partition(" (")[0])
        parts[key] = f'<div id="{key}">{section(part)}</div>'
    return PageView(title=name, parts=parts, before='<nav><a href="./">all runs</a></nav>')


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
