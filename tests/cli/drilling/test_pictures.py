"""The curves of a drill, drawn."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

from trainrun.contract.metrics import Metric
from trainrun_operator.cli.drilling.drill_report import curves, report_of
from trainrun_operator.cli.drilling.remedies import Finding
from trainrun_operator.cli.drilling.runs import Curve, Scenario
from trainrun_operator.cli.drilling.verdicts import Drill, Rehearsed
from trainrun_operator.cli.report.drawing import ROWS, braille, frame
from trainrun_operator.cli.report.page import page


def curve(first: int, plus: float = 0.0) -> Curve:
    told: dict[int, dict[str, Metric]] = {}
    for step in range(first, 31):
        told[step] = {"lr": 0.1, "loss": 1 / step + plus, "hash": "x", "step_time": 3.0}
    return told


FOUND = Finding(kind="WeightsDiffer", text="loss <b>differs</b>")
DRILL = Drill(
    run="llama<1>",
    world_size=2,
    until=30,
    seconds=12.0,
    within=None,
    curve=curve(1),
    rehearsed=(
        Rehearsed(
            scenario=Scenario(name="KillAfterCheckpoint"),
            outcome="Found",
            curve=curve(21, 0.5),
            findings=(FOUND,),
            seconds=3.0,
        ),
        Rehearsed(scenario=Scenario(name="NodeLoss"), outcome="Fine", curve=curve(21), seconds=2.0),
        Rehearsed(scenario=Scenario(name="Hang"), outcome="NotRehearsed", why_not="no time"),
    ),
)


def test_losses_come_first_and_what_is_no_number_or_a_time_is_not_drawn() -> None:
    assert list(curves(DRILL, most=6).pictures) == ["loss", "lr"]
    drawn = curves(DRILL, most=1)
    (loss,) = drawn.pictures.values()
    assert [drawn.names[run] for run in loss] == [
        "undisturbed",
        "kill after a checkpoint",
        "node lost",
    ]
    seen = frame(loss)
    assert seen is not None
    assert (seen.first, seen.last) == (1, 30)


def test_without_two_finite_numbers_there_is_no_picture() -> None:
    lost = Drill(
        run="x", world_size=1, until=2, seconds=1.0, within=None, curve={1: {"loss": math.nan}}
    )
    assert curves(lost, most=3).pictures == {}


def test_in_a_terminal_a_run_that_is_elsewhere_has_its_letter_there() -> None:
    lines = list(braille(curves(DRILL, most=1)))
    assert max(map(len, lines)) < 80
    assert len([line for line in lines if "│" in line]) == ROWS
    assert any("a" in line.partition("│")[2] for line in lines)
    assert not any("b" in line.partition("│")[2] for line in lines)
    legend = " ".join(line.strip() for line in lines[-2:])
    assert "a kill after a checkpoint" in legend
    assert "b node lost (on it)" in legend


class Tags(HTMLParser):
    """What is in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href")]


def test_the_page_fetches_nothing_has_no_script_and_escapes_what_it_shows() -> None:
    text = page(report_of(DRILL, exit_code=4, pictures=6))
    found = Tags()
    found.feed(text)
    assert "script" not in found.tags
    assert "<b>differs" not in text
    assert found.links == []
    assert found.tags.count("figure") == 2
    assert len(re.findall(r'<path class="c\d+ dot"', text)) == 2 * 2
    assert text.count("<path ") == 2 * (3 + 2)
    assert "llama&lt;1&gt;" in text
    assert "loss &lt;b&gt;differs&lt;/b&gt;" in text
    assert "no time" in text
    assert 'content="default-src' in text
