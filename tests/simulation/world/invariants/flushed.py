"""What the judge says of a flush: it ends, or its time is over, before a resume point is claimed.

Layer: simulation. A step that every rank has reported is not lost while those who have it live, can
be heard and have time to bring it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.clock import Clock
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status_parts import Ending
    from trainrun_operator.core.run.config import RunConfig


class TimeOfFlush(Protocol):
    """What there really is."""

    config: RunConfig
    clock: Clock


def thrown_away(
    world: TimeOfFlush,
    *,
    ending: Ending,
    gang: Sequence[SimAgent],
    resume: CheckpointId | None,
) -> int | None:
    """The newest step that the gang of the ended attempt was about to store, where the claim of
    `resume` loses it without a reason; None: there is none."""
    until = ending.flush_until or ending.time + world.config.flush_timeout
    if world.clock.datetime > until:
        return None
    begin = resume.step if resume is not None and resume.attempt == gang[0].attempt else -1
    steps = {step for agent in gang for step in _held(agent)}
    lost = (step for step in steps if step > begin and all(_is_there(a, step, gang) for a in gang))
    return max((step for step in lost if any(_lacks(a, step, gang) for a in gang)), default=None)


def _held(agent: SimAgent) -> set[int]:
    """Steps that it has files for. With uploadEvery also those that it was told to drop: a newer
    one that all have must be there in their place."""
    held = {step for step, entry in agent.staging.steps.items() if entry.ranks}
    return held | agent.staging.dropped if agent.staging.keeps else held


def _lacks(agent: SimAgent, step: int, gang: Sequence[SimAgent]) -> bool:
    entry = agent.staging.steps.get(step)
    copies = (other.buddy.copies.get((agent.slot, step)) for other in gang)
    by_buddy = any(copy is not None and copy.uploaded for copy in copies)
    return not by_buddy and (entry is None or not entry.uploaded)


def _is_there(agent: SimAgent, step: int, gang: Sequence[SimAgent]) -> bool:
    """Its part is, or will be, stored: by itself, or by a buddy that lives."""
    return _brings(agent, step) or (
        not agent.alive
        and any(a.alive and not a.unheard and a.buddy.has(agent.slot, step) for a in gang)
    )


def _brings(agent: SimAgent, step: int) -> bool:
    """It has stored its part, or is going to. Of one that is gone nobody may know what it had."""
    dropped = step in agent.staging.dropped and not agent.staging.keeps
    if not agent.alive or agent.unheard or dropped:
        return False
    entry = agent.staging.steps.get(step)
    if entry is not None:
        return entry.complete
    return agent.training is not None and agent.training.passed(step)
