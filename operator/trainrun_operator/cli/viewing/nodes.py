"""Nodes on one page: which ones runs avoid now, and where the incidents of all runs began.

Layer: cli; pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainrun_operator.cli.formatting import clock, counted, some
from trainrun_operator.cli.report.model import Document, Section, Table, TableRow
from trainrun_operator.cli.report.page import head, section
from trainrun_operator.cli.viewing.rows import RunRow
from trainrun_operator.cli.viewing.views import TO_LIST, PageView, link, names_of, trouble

MOST_NODES = 200
"""Nodes in the table, the worst."""
MOST_NAMED = 3
"""Runs and causes that one cell names."""
_AVOIDED = re.compile(r"[:,] ([a-z0-9][a-z0-9.-]*) \(\d[\d,]* incident")
"""A node in the message that says which ones are avoided."""
HEADS = ("node", "avoided by", "incidents", "causes", "runs", "newest")


@dataclass(slots=True)
class NodeRecord:
    """What happened on one node."""

    node: str
    avoided_by: list[str] = field(default_factory=list)
    """Names of runs."""
    runs: Counter[str] = field(default_factory=Counter)
    """Incidents by run."""
    causes: Counter[str] = field(default_factory=Counter)
    newest: datetime | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of its row, in the order of HEADS."""
        causes = [f"{cause} {n}" if n > 1 else cause for cause, n in self.causes.most_common()]
        return (
            self.node,
            some(self.avoided_by, MOST_NAMED),
            str(self.causes.total()),
            some(causes, MOST_NAMED),
            some([name for name, _ in self.runs.most_common()], MOST_NAMED),
            "" if self.newest is None else clock(self.newest, day=True),
        )


def nodes_of(runs: Iterable[tuple[str, RunRow]]) -> list[NodeRecord]:
    """The nodes of these runs, with their names; avoided ones first, then by incidents."""
    found: dict[str, NodeRecord] = {}
    for name, row in runs:
        for strike in row.strikes:
            record = found.setdefault(strike.node, NodeRecord(strike.node))
            record.runs[name] += 1
            record.causes[strike.cause] += 1
            record.newest = max(record.newest or strike.time, strike.time)
        for node in _AVOIDED.findall(row.avoided):
            found.setdefault(node, NodeRecord(node)).avoided_by.append(name)
    return sorted(found.values(), key=lambda r: (-len(r.avoided_by), -r.causes.total(), r.node))


def nodes_view(rows: Sequence[RunRow], troubles: Iterable[str]) -> PageView:
    """The page of the nodes of these runs, not of sweeps."""
    rows = [row for row in rows if not row.sweep]
    runs = [*zip(names_of(rows), rows, strict=True)]
    found = nodes_of(runs)
    avoided = sum(bool(record.avoided_by) for record in found)
    what = f"{counted(avoided, 'node')} avoided now; " if avoided else "No node is avoided now; "
    incidents = sum(record.causes.total() for record in found)
    told = Document(
        name="Nodes",
        headline=f"{what}{counted(incidents, 'incident')} on {counted(len(found), 'node')}, "
        f"of {counted(len(runs), 'run')}.",
        tone="note" if avoided else "plain",
        remarks=tuple(dict.fromkeys(f"{name}: {row.avoided}" for name, row in runs if row.avoided)),
    )
    table = Table(
        heads=HEADS,
        rows=tuple(
            TableRow(
                cells=record.cells,
                tone="note" if record.avoided_by else "plain",
                link=link("./", q=record.node),
            )
            for record in found[:MOST_NODES]
        ),
    )
    parts = {"trouble": trouble(troubles), "head": f'<div id="head">{head(told)}</div>'}
    if found:
        part = section(Section(title="Incidents by node, the newest of each run", blocks=(table,)))
        parts["nodes"] = f'<div id="nodes">{part}</div>'
    return PageView(title="Nodes", parts=parts, before=TO_LIST)
