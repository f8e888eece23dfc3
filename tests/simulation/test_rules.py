"""Lives of runs with rules: each action does what it says, whatever else breaks."""

from __future__ import annotations

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.lives import judged, living
from tests.simulation.test_lives import holds
from tests.support.levels import some
from trainrun_operator.core.run import rules as rules_of_core
from trainrun_operator.core.run.rules import Decision

FAULTS = ("exception", "kill", "oom", "node-loss", "preempt", "vanish", "rendezvous")


@pytest.mark.parametrize("number", some(range(60), quick=4))
def test_a_life_with_rules_keeps_the_promises(number: int) -> None:
    holds(drawn_life(number * 7 + 1, kinds=FAULTS))


@pytest.mark.slow
def test_a_rule_that_is_not_the_first_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = rules_of_core.decision
    from trainrun_operator.core.run.incidents import ledger

    monkeypatch.setattr(ledger, "decision", lambda i, rules: decide(i, tuple(reversed(rules))))
    assert noticed()


@pytest.mark.slow
def test_a_run_that_goes_on_although_a_rule_fails_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainrun_operator.core.run.incidents import ledger

    monkeypatch.setattr(ledger, "decision", lambda *_: Decision(action=""))
    assert noticed()


def noticed() -> bool:
    """Whether some life ends in a mistake about a rule."""
    lives = (judged(living(drawn_life(number, kinds=FAULTS))) for number in range(60))
    return any("decides" in mistake for mistakes in lives for mistake in mistakes)
