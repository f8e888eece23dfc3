"""Lives of runs with rules: each action does what it says, whatever else breaks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.holding import holds
from tests.simulation.lives import judged, living
from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.support.levels import some
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.core.run.incidents import ledger

FAULTS = ("exception", "kill", "oom", "node-loss", "preempt", "vanish", "rendezvous")


@pytest.mark.case(
    "decisions", "A rule of failurePolicy.rules matches an incident", counted="what its action says"
)
@pytest.mark.parametrize("number", some(range(20), quick=4))
def test_a_life_with_rules_keeps_the_promises(number: int) -> None:
    holds(drawn_life(number * 7 + 1, kinds=FAULTS))


@pytest.mark.slow
def test_a_rule_that_is_not_the_first_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = ledger.decided
    monkeypatch.setattr(ledger, "decided", lambda i, rules: decide(i, tuple(reversed(rules))))
    assert noticed()


@pytest.mark.slow
def test_a_run_that_goes_on_although_a_rule_fails_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "decided", lambda incident, _: replace(incident, action=""))
    assert noticed()


def noticed() -> bool:
    """Whether some life ends in a mistake about a rule."""
    lives = (judged(living(drawn_life(number, kinds=FAULTS))) for number in range(60))
    return any("decides" in mistake for mistakes in lives for mistake in mistakes)


@pytest.mark.parametrize("seed", some(range(5), quick=2))
def test_workers_that_are_well_are_not_replaced_while_a_dead_node_is_not_known_yet(
    seed: int,
) -> None:
    """Their peers fail first, with the exit code that a rule avoids nodes for."""
    rule = FailureRule(action="RestartAvoidingNode", exit_codes=(1,))
    limits = {"failures": -1, "preemptions": -1}
    world = a_life(seed=seed, config=a_config(rules=(rule,), limits=limits))
    until(world, lambda: runs(world, 1))
    world.darken(worker(world, 2), suspected_after=4.0)
    world.live(HOUR)
    assert world.judge.closing() == []
    assert (world.status.phase, causes(world)) == ("Succeeded", ["NodeLost"])
    assert [worker(world, slot).created_for for slot in range(3)] == [1, 1, 2]
