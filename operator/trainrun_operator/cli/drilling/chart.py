"""The curves of one metric over each other, as SVG within a page.

Layer: cli; pure. The undisturbed run is drawn thick and below the others, so that runs which equal
it are seen to lie on it; a ring marks where each run went on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.series import Picture, Series

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 300, 70, 12, 12, 28
LINES = 4
"""Between the lowest and the highest value."""
COLOURS = 11

CHART_STYLE = """
:root{--c0:#afb8c1;--c1:#cf222e;--c2:#0969da;--c3:#8250df;--c4:#1a7f37;--c5:#bf8700;--c6:#1b7c83;
--c7:#bc4c00;--c8:#bf3989;--c9:#54aeff;--c10:#6e7781}
@media(prefers-color-scheme:dark){:root{--c0:#6e7681;--c1:#f85149;--c2:#58a6ff;--c3:#a371f7;
--c4:#3fb950;--c5:#d29922;--c6:#39c5cf;--c7:#f0883e;--c8:#f778ba;--c9:#a5d6ff;--c10:#b1bac4}}
figure{margin:0}svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font-size:12px}
svg .grid{stroke:var(--line)}svg polyline,svg circle{fill:none;stroke-width:2}
svg polyline.control{stroke-width:7}.key{margin-right:1rem;white-space:nowrap}
.key i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.4em}
"""


def chart(picture: Picture) -> str:
    """An `svg` element."""
    (low, high), (first, last) = picture.values, picture.steps
    grid = "".join(_line(low + (high - low) * part / LINES, picture) for part in range(LINES + 1))
    runs = "".join(_run(number, it, picture) for number, it in enumerate(picture.series))
    floor = HEIGHT - BOTTOM + 18
    ends = (
        f'<text x="{LEFT}" y="{floor}">step {first}</text>'
        f'<text x="{WIDTH - RIGHT}" y="{floor}" text-anchor="end">{last}</text>'
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{grid}{ends}{runs}</svg>'


def _place(step: int, value: float, picture: Picture) -> tuple[float, float]:
    (low, high), (first, last) = picture.values, picture.steps
    x = LEFT + (step - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)
    y = TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)
    return round(x, 1), round(y, 1)


def _line(value: float, picture: Picture) -> str:
    _, y = _place(picture.steps[0], value, picture)
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:.3g}</text>'
    )


def _run(number: int, series: Series, picture: Picture) -> str:
    places = [_place(step, value, picture) for step, value in series.points]
    points = " ".join(f"{x},{y}" for x, y in places)
    colour = f'style="stroke:var(--c{number % COLOURS})"'
    if number == 0:
        return f'<polyline class="control" {colour} points="{points}"/>'
    x, y = places[0]
    return f'<polyline {colour} points="{points}"/><circle {colour} cx="{x}" cy="{y}" r="4"/>'
