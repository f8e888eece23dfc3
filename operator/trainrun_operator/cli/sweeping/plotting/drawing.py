"""SVG that all pictures of a sweep are made of: a box with axes, marks, lines.

Layer: cli; pure. What a trial has come to shows in the shape of its mark and the dashes of its
line, not in a colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainrun.sweep.records import TrialState
from trainrun_operator.cli import wording
from trainrun_operator.cli.pages.frame import safe
from trainrun_operator.cli.pages.strokes import Place
from trainrun_operator.cli.sweeping.plotting.plotted import GRADES, Plotted, Shown
from trainrun_operator.cli.sweeping.plotting.scales import Numbers, Scale
from trainrun_operator.cli.sweeping.texts import trials

ASIDE = 18
"""Pixels below the floor of a box: what has no place on the upright axis stands there."""
WITHOUT = "no value"
LONGEST_WORDS = 48
"""Characters of the name of an axis."""
STATES: dict[TrialState, str] = {
    "Succeeded": "succeeded",
    "Stopped": "stopped, most often early",
    "Diverged": "diverged",
    "Errored": "errored",
    "Skipped": "skipped",
    "Open": "open",
}
"""In the order in which they are told, and what their marks mean."""

MARKS = (
    '<svg class="marks" aria-hidden="true"><defs>'
    '<circle id="Succeeded" r="4" fill="currentColor"/>'
    '<path id="Stopped" d="M0-5.5L5.5 0 0 5.5-5.5 0z" class="hollow"/>'
    '<circle id="Open" r="4" class="hollow"/>'
    '<path id="Errored" d="M-4-4L4 4M-4 4L4-4" class="hollow"/>'
    '<path id="Diverged" d="M-5 4L0-5 5 4z" class="hollow"/>'
    '<path id="Skipped" d="M-4-4H4V4H-4z" class="hollow"/>'
    '<path id="best" d="M0-8L2 -2.6 7.6-2.5 3.2 1.1 4.7 6.5 0 3.3-4.7 6.5-3.2 1.1-7.6-2.5'
    '-2-2.6z" fill="currentColor"/>'
    "</defs></svg>"
)
"""A mark for each state of a trial, and that of the best one; once in a page."""


@dataclass(frozen=True)
class PagePart:
    """Of the page: HTML, and what has to be said about it."""

    html: str
    notes: tuple[str, ...] = ()
    """Some of them may be empty."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """Where a picture lies in its `svg`, in pixels."""

    width: int
    height: int
    left: int = 64
    right: int = 24
    top: int = 24
    bottom: int = 56

    @property
    def floor(self) -> int:
        """Height of the lower end of the upright axis."""
        return self.height - self.bottom

    def x(self, share: float) -> float:
        """Of this share of the axis that runs across."""
        return self.left + share * (self.width - self.left - self.right)

    def y(self, share: float | None) -> float:
        """Of this share of the upright axis; of what has none, below it."""
        return self.floor + ASIDE if share is None else self.floor - share * (self.floor - self.top)

    def svg(self, inside: str, *, told: str) -> str:
        """The element; `told` says what is seen."""
        size = f'viewBox="0 0 {self.width} {self.height}"'
        return f'<svg class="picture" {size} role="img" aria-label="{safe(told)}">{inside}</svg>'

    def axes(self, across: Scale, up: Scale, *, named: str, valued: str, most: int) -> str:
        """Lines, numbers and names of both axes; so many numbers across at most."""
        grid = "".join(
            f'<line class="grid" x1="{self.left}" x2="{self.width - self.right}" '
            f'y1="{self.y(share):.1f}" y2="{self.y(share):.1f}"/>'
            + words(self.left - 8, self.y(share) + 4, text, anchor="end")
            for share, text in up.ticks(6)
        )
        below = self.floor + ASIDE + 18
        along = "".join(
            words(self.x(share), below, text, anchor="middle") for share, text in across.ticks(most)
        )
        name = words(self.x(0.5), self.height - 4, named, anchor="middle", kind="name")
        return grid + along + name + words(4, 13, valued, kind="name")


def words(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    """A line of text; `kind` is a class of the style."""
    classes = f' class="{kind}"' if kind else ""
    text = wording.shortened(text, LONGEST_WORDS)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{safe(text)}</text>'


def kind_of(shown: Shown, plotted: Plotted) -> str:
    """The class of a trial's mark and line."""
    return "best" if plotted.leads(shown) else shown.trial.state


def mark(shown: Shown, at: Place, plotted: Plotted) -> str:
    """What a trial has come to, at this place."""
    x, y = at
    kind = kind_of(shown, plotted)
    return (
        f'<use href="#{kind}" class="{kind}" x="{x:.1f}" y="{y:.1f}">{plotted.title(shown)}</use>'
    )


def legend() -> str:
    """What marks and dashes mean."""
    meanings = [("best", "the best trial"), *STATES.items()]
    items = "".join(
        f'<span><svg class="key" viewBox="0 0 34 16" aria-hidden="true">'
        f'<path class="trial {state}" d="M1 8H33"/><use href="#{state}" class="{state}" x="24" '
        f'y="8"/></svg>{meaning}</span>'
        for state, meaning in meanings
    )
    return f'<p class="legend">{items}</p>'


def grades() -> str:
    """What the colours by value mean."""
    swatches = "".join(f'<i class="v{grade}"></i>' for grade in range(GRADES))
    return (
        f'<p class="legend"><span>best {swatches} worst, by rank</span>'
        f'<span><i class="best"></i>the best trial</span>'
        f'<span><i class="v{GRADES}"></i>{WITHOUT}</span></p>'
    )


def thinned(count: int, most: int) -> str:
    """A note where not every trial is drawn; else empty."""
    if count <= most:
        return ""
    return (
        f"{most:,} of {trials(count)} are drawn, evenly chosen by their numbers, the best one "
        "among them."
    )


def beyond(axis: Numbers, worst: Iterable[float]) -> str:
    """A note where some of these lie beyond the axis; else empty."""
    count = sum(not axis.low <= value <= axis.high for value in worst)
    if not count:
        return ""
    return f"The worst values of {trials(count)} lie far beyond the axis, and are drawn at its end."


def left_out(names: Iterable[str]) -> str:
    """A note where some parameters have no place in a picture; else empty."""
    told = ", ".join(names)
    return f"Left out here: {told}." if told else ""
