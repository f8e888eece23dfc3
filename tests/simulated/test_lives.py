"""Random lives of a run: whatever breaks, and whenever, the promises hold at every moment."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.simulated.lives import FAULTS, PATIENCE, Fault, Life, living

LIVES = int(os.environ.get("TRAINRUN_LIVES", "3000"))
"""Random lives; the promise is at least 3,000 in a test run."""

faults = st.builds(
    Fault,
    kind=st.sampled_from(FAULTS),
    at=st.floats(0, 40).map(lambda at: round(at, 2)),
    slot=st.integers(0, 3),
    size=st.floats(0, 1).map(lambda size: round(size, 2)),
)
lives = st.builds(
    Life,
    seed=st.integers(0, 2**32),
    replicas=st.integers(1, 4),
    max_failures=st.sampled_from([-1, 0, 1, 3]),
    max_preemptions=st.sampled_from([None, None, -1, 1]),
    loss=st.sampled_from([0.0, 0.0, 0.1, 0.3]),
    duplicate=st.sampled_from([0.0, 0.2]),
    delay=st.sampled_from([0.02, 0.2, 1.5]),
    hang=st.booleans(),
    faults=st.lists(faults, max_size=6).map(tuple),
)


# Lives are many: measuring coverage would triple their time, and tests/core covers the core.
@pytest.mark.no_cover
@settings(
    max_examples=LIVES,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
@given(life=lives)
def test_every_life_keeps_the_promises_and_ends_when_faults_stop(life: Life) -> None:
    """Counted once, one start record, never a bad resume, finished stays finished, and it ends."""
    world = living(life)
    world.live(PATIENCE)
    mistakes = world.judge.closing()
    note(f"{life!r}\nattempt {world.status.attempt}, {world.status.phase}, incidents:")
    for incident in world.status.incidents:
        note(f"  {incident.attempt} {incident.cause} {incident.budget} {incident.message}")
    assert not mistakes, mistakes[0]
    assert world.status.finished, f"still {world.status.phase} after {PATIENCE} s: {world.status}"
    failed = world.status.condition("Failed")
    allowed = ["MaxFailuresExceeded", "MaxPreemptionsExceeded", None]
    if any(fault.kind == "damage" for fault in life.faults):
        allowed.append("NoGoodCheckpoint")
    assert (failed.reason if failed else None) in allowed, failed
