"""Several runs on one page: how far each is and what it cost, curves over each other, differences.

Layer: cli; pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trainrun_operator.cli.explaining.metric_curves import MOST_METRICS
from trainrun_operator.cli.formatting import long, some
from trainrun_operator.cli.report.model import Block, Curves, Section, Table, TableRow, TextLine
from trainrun_operator.cli.report.page import section
from trainrun_operator.cli.viewing.run_details import RunDetails
from trainrun_operator.cli.viewing.settings import Settings, differences, settings_of
from trainrun_operator.cli.viewing.views import TO_LIST, PageView, dom_id, link, names_of, trouble

MOST_RUNS = 8
"""Runs on one page: more curves cannot be told apart."""
MOST_DIFFERENCES = 60
"""Settings that are listed."""
HEADS = ("run", "phase", "step", "took", "goodput", "failures", "steps done again", "last cause")


def compare_view(compared: Sequence[RunDetails], troubles: Iterable[str]) -> PageView:
    """The page of these runs, in this order."""
    names = names_of([details.row for details in compared])
    own = (f"{name}: {text}" for name, each in zip(names, compared, strict=True)
           for text in (*each.troubles.values(), *each.extras.remarks))  # fmt: skip
    parts = {"trouble": trouble((*troubles, *own))}
    for part in _sections(names, compared):
        key = dom_id(part.title)
        parts[key] = f'<div id="{key}">{section(part)}</div>'
    before = f"{TO_LIST}<h1>{len(compared)} runs</h1>"
    return PageView(title=f"Compare {', '.join(names)}", parts=parts, before=before)


def _sections(names: Sequence[str], compared: Sequence[RunDetails]) -> Iterator[Section]:
    cells = zip(names, compared, strict=True)
    table = Table(heads=HEADS, rows=tuple(_row(name, details) for name, details in cells))
    yield Section(title="How they stand", blocks=(table,))
    yield Section(title="Curves", blocks=tuple(_curves(names, compared)), id="curves")
    yield Section(title="What differs", blocks=tuple(_differences(names, compared)))


def _row(name: str, details: RunDetails) -> TableRow:
    row, life = details.row, details.life
    spent = {} if life is None else life.seconds
    return TableRow(
        cells=(
            name,
            row.phase,
            row.step,
            long(sum(spent.values())) if spent else "-",
            row.share or "-",
            row.failed or "0",
            long(spent["rework"]) if spent.get("rework") else "-",
            row.cause or "-",
        ),
        link=link("run", id=row.id),
    )


def _curves(names: Sequence[str], compared: Sequence[RunDetails]) -> Iterator[Block]:
    """A picture for each metric, those that most runs reported first."""
    joined = [details.reader.curves.joined(details.newer) for details in compared]
    reported = Counter(metric for curves in joined for metric in curves)
    metrics = [metric for metric, _ in reported.most_common()]
    pictures = {
        metric: {run: curves[metric] for run, curves in enumerate(joined) if metric in curves}
        for metric in metrics[:MOST_METRICS]
    }
    if pictures:
        yield Curves(names=tuple(names), pictures=pictures)
    else:
        yield TextLine("None of them has reported a number yet.")
    if metrics[MOST_METRICS:]:
        yield TextLine(f"Not drawn: {some(metrics[MOST_METRICS:], MOST_METRICS)}.")


def _differences(names: Sequence[str], compared: Sequence[RunDetails]) -> Iterator[Block]:
    """From the specs of the runs; if one is known from its storage only, from their stories."""
    stored = [name for name, details in zip(names, compared, strict=True) if not details.spec]
    runs = [_facts(each) if stored else settings_of(each.spec) for each in compared]
    found = differences(runs)
    rows = tuple(
        TableRow(cells=(name, *(value or "-" for value in values)))
        for name, values in [*found.items()][:MOST_DIFFERENCES]
    )
    if rows:
        yield Table(heads=("", *names), rows=rows)
    else:
        yield TextLine("Nothing that is known of them.")
    if len(found) > MOST_DIFFERENCES:
        yield TextLine(f"and {len(found) - MOST_DIFFERENCES} more settings")
    if stored:
        yield TextLine(
            f"The specs are not compared: only the storage shows {some(stored, MOST_RUNS)}."
        )


def _facts(details: RunDetails) -> Settings:
    """What its newest attempt was started with, as its story has it."""
    ran = () if details.life is None else details.life.ran
    return ran[-1].facts if ran else {}
