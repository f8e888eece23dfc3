"""One row says everything about a cause, one about a budget; the spec and the status agree."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.support.builders import a_run, an_incident
from trainrun_operator.api.run.spec import FailurePolicy
from trainrun_operator.api.run.status_parts import BudgetName, Cause, Failures
from trainrun_operator.core.run.causes import (
    BUDGETS,
    CAUSES,
    Budget,
    advice_on,
    budget_of,
    limits_of,
    row_of,
    signal_of,
)
from trainrun_operator.core.run.incidents.ledger import judge


def test_every_budget_that_an_incident_can_name_has_a_row() -> None:
    assert {*BUDGETS, "none"} == set(get_args(BudgetName))


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=lambda budget: budget.one)
def test_the_limit_of_a_budget_is_read_from_the_field_that_it_names(budget: Budget) -> None:
    assert budget.limit(FailurePolicy.model_validate({budget.field: 7})) == 7


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=lambda budget: budget.one)
def test_an_incident_is_counted_by_its_own_budget_alone(budget: Budget) -> None:
    charged = budget.charged(Failures())
    used = {other.one: other.used(charged) for other in BUDGETS.values()}
    assert used == {other.one: int(other is budget) for other in BUDGETS.values()}


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=lambda budget: budget.one)
def test_what_is_charged_instead_of_a_budget_has_a_limit_in_every_spec(budget: Budget) -> None:
    assert budget.falls_back_to in limits_of(FailurePolicy())


def test_silence_is_treated_like_an_end_without_a_reason() -> None:
    assert CAUSES[Cause.SILENT] == CAUSES[Cause.UNKNOWN]


def test_an_open_silence_of_the_version_before_still_waits_for_its_node() -> None:
    """It called silence Unknown."""
    scene = a_run(replicas=3).running().silent(1, 31)
    told = an_incident(Cause.UNKNOWN, slot=1, time=scene.now)
    plan = scene.ended(told).silent(1, 31).plan
    assert plan.reason == "Attributing"
    assert "its node may explain it; waiting for the state of the node" in plan.message


NOT_ITS_OWN = "its own output does not show who sent"


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (129, f"{NOT_ITS_OWN} SIGHUP"),
        (130, f"{NOT_ITS_OWN} SIGINT"),
        (137, f"{NOT_ITS_OWN} SIGKILL: look for the OOM killer in the kernel log of its machine"),
        (138, f"{NOT_ITS_OWN} SIGUSR1"),
        (140, f"{NOT_ITS_OWN} SIGUSR2"),
        (143, f"{NOT_ITS_OWN} SIGTERM"),
        (139, "read the last lines of the rank named"),
        (134, "read the last lines of the rank named"),
        (1, "read the last lines of the rank named"),
        (None, "read the last lines of the rank named"),
    ],
)
def test_after_a_signal_that_others_send_nobody_is_sent_to_read_the_last_lines(
    end: int | None, told: str
) -> None:
    scene = a_run(max_failures=0)
    verdict = judge(scene.status, an_incident(rank=0, exit_code=end), scene.config)
    assert verdict is not None
    assert f"0 were used before: {told}" in verdict.message


def test_a_kill_for_memory_is_told_with_what_helps_against_that() -> None:
    told = advice_on(Cause.OUT_OF_MEMORY, rank=0, exit_code=137)
    assert told == "raise the memory limit or use less memory per process"


@pytest.mark.parametrize(
    ("rank", "code", "signal"),
    [(0, 128, None), (0, 129, 1), (0, 192, 64), (0, 193, None), (None, 137, None)],
)
def test_an_exit_code_tells_the_signal_that_ended_a_rank(
    rank: int | None, code: int, signal: int | None
) -> None:
    assert signal_of(an_incident(rank=rank, exit_code=code)) == signal


def test_what_the_store_refuses_is_free_three_times_in_a_row() -> None:
    row = [budget_of(Cause.STORAGE_REFUSED, {"failures": 0}, in_a_row=n) for n in (3, 4)]
    assert row == ["none", "failures"]


def test_a_word_of_another_version_is_treated_like_unknown() -> None:
    assert row_of("Melted") is CAUSES[Cause.UNKNOWN]
    assert budget_of("Melted", {"failures": 0}, in_a_row=1) == "failures"
