"""Random lives of a run: whatever breaks, and whenever, the promises hold at every moment."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.simulation.lives import FAULTS, PATIENCE, Fault, Life, judged, living
from tests.support.levels import examples

LIVES = int(os.environ.get("TRAINRUN_LIVES") or examples(3000))
"""Random lives; the promise is at least 3,000 in a test run."""

PARTS = max(1, LIVES // 300)
"""Tests that share them: a minute of one processor each, so that all processes take some."""

PHASES = [Phase.generate] if settings.default.derandomize else list(Phase)
"""By hand a life that fails is made smaller, which can take an hour."""

texts = st.one_of(
    st.just("ValueError: bad batch"),
    st.text(max_size=12),
    st.sampled_from(
        ["損" * 300, "\x00\x1b[31m\r\n" * 50, "\U0010ffff\ufffe\u202e", '{"a": "\\' * 99]
    ),
)
faults = st.builds(
    Fault,
    kind=st.sampled_from(FAULTS),
    at=st.floats(0, 40).map(lambda at: round(at, 2)),
    slot=st.integers(0, 3),
    size=st.floats(0, 1).map(lambda size: round(size, 2)),
    text=texts,
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
    grace=st.sampled_from([0.0, 2.0, 30.0]),
    faults=st.lists(faults, max_size=6).map(tuple),
    deadline=st.sampled_from([None, None, None, 25.0, 60.0]),
    ttl=st.sampled_from([None, 5.0, 30.0]),
    processes=st.sampled_from([1, 1, 1, 2, 3]),
    together=st.sampled_from([True, True, True, False]),
    says_finished=st.booleans(),
)

A_NODE_DIES_BEFORE_ITS_AGENT_CALLS = Life(
    seed=48,
    replicas=1,
    max_failures=-1,
    max_preemptions=None,
    loss=0.1,
    duplicate=0.0,
    delay=0.02,
    hang=False,
    grace=0.0,
    faults=(
        Fault(kind="kill", at=0.0, slot=0, size=0.0),
        Fault(kind="kill", at=0.0, slot=0, size=0.0),
        Fault(kind="dark-node", at=2.0, slot=0, size=1.0),
        Fault(kind="blind", at=11.0, slot=0, size=1.0),
        Fault(kind="hang", at=32.0, slot=0, size=1.0),
    ),
)
"""And its deletion does not get through until health.startTimeout is over."""

A_RANK_HAD_LEFT_WHEN_A_STEP_WAS_REPORTED = Life(
    seed=5250,
    replicas=3,
    max_failures=3,
    max_preemptions=None,
    loss=0.0,
    duplicate=0.0,
    delay=1.0,
    hang=True,
    grace=0.0,
    faults=(
        Fault(kind="leave", at=14.49, slot=1, size=0.99),
        Fault(kind="leave", at=22.76, slot=0, size=0.98),
        Fault(kind="kill", at=19.77, slot=1, size=0.58),
        Fault(kind="kill", at=34.8, slot=3, size=0.19),
    ),
    processes=2,
    together=False,
    says_finished=True,
)
"""And its worker brought no files for it, and had not been told of it when the attempt ended."""


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_keeps_the_promises_and_ends_when_faults_stop(part: int) -> None:
    """Counted once, one start record, never a bad resume, finished stays finished, and it ends."""

    @settings(
        max_examples=-(-LIVES // PARTS),
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    @given(life=lives)
    def some_lives(life: Life) -> None:
        holds(life)

    # Where examples follow from the test alone, each part has its own; by hand all are new.
    (seed(part)(some_lives) if settings.default.derandomize else some_lives)()


def test_a_node_dies_before_its_agent_calls() -> None:
    holds(A_NODE_DIES_BEFORE_ITS_AGENT_CALLS)


def test_a_step_is_resumed_that_every_rank_had_reported_but_one_that_had_left() -> None:
    holds(A_RANK_HAD_LEFT_WHEN_A_STEP_WAS_REPORTED)


def holds(life: Life) -> None:
    """Live it; fails with the first mistake and what led to it."""
    world = living(life)
    mistakes = judged(world)
    story = [f"{life!r}", f"attempt {world.status.attempt}, {world.status.phase}, incidents:"]
    for incident in world.status.incidents:
        story.append(f"  {incident.attempt} {incident.cause} {incident.budget} {incident.message}")
    told = "\n".join(story)
    assert not mistakes, f"{mistakes[0]}\n{told}"
    assert world.status.finished, f"still {world.status.phase} after {PATIENCE} s\n{told}"
    failed = world.status.condition("Failed")
    allowed = ["MaxFailuresExceeded", "MaxPreemptionsExceeded", None]
    if any(fault.kind == "damage" for fault in life.faults):
        allowed.append("NoGoodCheckpoint")
    if life.deadline is not None:
        allowed.append("DeadlineExceeded")
    assert (failed.reason if failed else None) in allowed, f"{failed}\n{told}"
