"""How long the parts of a recovery took.

Layer: cli; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course


def recovery(course: Course) -> float | None:
    """Seconds from the end of the first attempt to the first step of the one that went on; None:
    there was none."""
    if len(course.chapters) < 2:
        return None
    ended, first = course.chapters[0].ended, course.chapters[-1].first_step
    return (first - ended).total_seconds() if ended is not None and first is not None else None


def detected(course: Course) -> float | None:
    """Seconds from the first failure until it was found; None: that is not known."""
    told = course.chapters[0].incident.get("detectSeconds") if course.chapters else None
    return float(told) if isinstance(told, int | float) else None


def stages(course: Course) -> dict[str, float]:
    """Its parts, in seconds, in their order; they sum to it. Empty: not all of them are known.

    `stop`: until the attempt that went on was begun, further failures included; `start`: until its
    processes were started; `rendezvous`: until one asked for its checkpoint; `load`: until all had
    it; `firstStep`: the rest.
    """
    whole, last = recovery(course), course.chapters[-1] if course.chapters else None
    if whole is None or last is None or last.spawned is None:
        return {}
    ended = course.chapters[0].ended
    assert ended is not None
    stop = (last.begun - ended).total_seconds()
    start = (last.spawned - last.begun).total_seconds()
    rest = max(whole - stop - start, 0.0)
    rendezvous = min(last.rendezvous_seconds, rest)
    load = min(last.load_seconds, rest - rendezvous)
    parts = {
        "stop": stop,
        "start": start,
        "rendezvous": rendezvous,
        "load": load,
        "firstStep": rest - rendezvous - load,
    }
    return {name: round(seconds, 3) for name, seconds in parts.items()}
