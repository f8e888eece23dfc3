"""Whether a life holds what is promised, and what led to it where it does not."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tests.simulation.earlier import mistakes_about_it
from tests.simulation.lives import PATIENCE, Life, judged, living
from tests.simulation.telling import mistakes_in_its_story
from tests.simulation.world.simulation import Simulation


def holds(life: Life) -> None:
    """Live it; fails with the first mistake and what led to it."""
    mistake = mistake_in(life)
    assert not mistake, mistake


def mistake_in(
    life: Life, make: Callable[..., Simulation] = Simulation, verdicts: Collection[str] = ()
) -> str:
    """Live it: the first mistake, with the life and its incidents; "" where there is none.

    `verdicts`: with which it may fail besides.
    """
    world = living(life, make)
    mistakes = [
        *judged(world),
        *mistakes_about_it(world, life.before),
        *_ends_badly(world, life, verdicts),
    ]
    mistakes += mistakes_in_its_story(world)
    return f"{mistakes[0]}\n{_told(world, life)}" if mistakes else ""


def _told(world: Simulation, life: Life) -> str:
    story = [f"{life!r}", f"attempt {world.status.attempt}, {world.status.phase}, incidents:"]
    for incident in world.status.incidents:
        story.append(f"  {incident.attempt} {incident.cause} {incident.budget} {incident.message}")
    return "\n".join(story)


def _ends_badly(world: Simulation, life: Life, verdicts: Collection[str]) -> list[str]:
    """It has not ended, or with a verdict that nothing in this life calls for."""
    if not world.status.finished:
        return [f"still {world.status.phase} after {PATIENCE} s"]
    failed = world.status.condition("Failed")
    if failed is None or failed.status != "True" or failed.reason in {*_verdicts(life), *verdicts}:
        return []
    return [f"it has failed with {failed.reason}: {failed.message}"]


def _verdicts(life: Life) -> set[str]:
    """With which this life may fail."""
    struck = {fault.kind for fault in life.faults}
    allowed = {"MaxFailuresExceeded", "MaxPreemptionsExceeded", "MaxStartFailuresExceeded"}
    # The word of a node that reads wrongly is taken once where there is no other.
    if "damage" in struck or ("misread" in struck and life.replicas == 1):
        allowed.add("NoGoodCheckpoint")
    if life.no_progress_limit:
        allowed.add("NoProgress")
    if any(rule.action == "FailRun" for rule in life.rules):
        allowed.add("FailedByRule")
    if life.deadline is not None:
        allowed.add("DeadlineExceeded")
    if "fatal" in struck:
        allowed.add("FatalError")
    if life.before != "Nothing" and life.on_existing == "Fail":
        allowed.add("StorageNotEmpty")
    return allowed
