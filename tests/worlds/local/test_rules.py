"""What the spec's rules and the script's own words do to a run, from end to end on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.levels import later_rare

if TYPE_CHECKING:
    from tests.worlds.local.local_runs import Ended, LocalRuns

AT_ONCE = {"initial": "0s", "max": "0s"}


def ending(runs: LocalRuns, how: str, *, attempts: int = 1, **policy: Any) -> Ended:
    runs.script = "ends.py"
    runs.env = {"ENDS": how, "ATTEMPTS": str(attempts)}
    runs.spec = {"failurePolicy": {"backoff": AT_ONCE, **policy}}
    return runs.run()


@pytest.mark.case(
    "decisions", "A rule of failurePolicy.rules matches an incident", counted="what its action says"
)
def test_a_rule_fails_the_run_at_its_exit_code_whatever_the_budget_has_left(
    runs: LocalRuns,
) -> None:
    rule = {"name": "bad-data", "exitCodes": [3], "action": "FailRun"}
    ended = ending(runs, "SystemExit(3)", maxFailures=-1, rules=[rule])
    assert ended.code == 1
    assert ended.condition("Failed")["reason"] == "FailedByRule"
    assert (
        "spec.failurePolicy.rules[0] (bad-data) says FailRun"
        in (ended.condition("Failed")["message"])
    )
    assert ended.status["restarts"] == 0


@pytest.mark.parametrize(
    "matcher",
    [
        {"exceptions": ["ArithmeticError"], "messagePattern": "ZeroDivision.*no data$"},
        {"ranks": [1], "causes": ["AppError"], "containers": ["worker"], "exitCodes": [1]},
    ],
    ids="-".join,
)
def test_a_rule_lets_a_run_restart_that_has_no_budget(
    runs: LocalRuns, matcher: dict[str, Any]
) -> None:
    rule = {**matcher, "action": "RestartUncounted"}
    ended = ending(runs, "ZeroDivisionError('no data')", maxFailures=0, rules=[rule])
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["counted"], incident["rule"]) == (False, "rules[0]")
    assert incident["exception"][:2] == ["ZeroDivisionError", "ArithmeticError"]
    assert incident["raisedAt"].startswith("ends.py:")


def test_a_restart_that_avoids_the_node_is_one_on_another_node(runs: LocalRuns) -> None:
    rule = {"exitCodes": [3], "action": "RestartAvoidingNode"}
    ended = ending(runs, "SystemExit(3)", maxFailures=1, rules=[rule])
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["counted"], incident["action"]) == (True, "RestartAvoidingNode")
    started = ended.status["internal"]["startRecord"]["roster"]
    assert started == [1, 2]


@pytest.mark.case(
    "decisions", "The script raises trainrun.FatalError", counted="maxFailures; the run fails"
)
def test_a_script_that_says_that_no_restart_makes_sense_fails_the_run(runs: LocalRuns) -> None:
    ended = ending(runs, "trainrun.FatalError('the data set is empty')", maxFailures=-1)
    assert ended.code == 1
    failed = ended.condition("Failed")
    assert failed["reason"] == "FatalError"
    assert failed["message"].startswith(
        "rank 1 exited with code 1: trainrun.FatalError: the data set is empty"
    )
    assert ended.status["restarts"] == 0


@pytest.mark.case(
    "decisions", "The script raises trainrun.RetryError", counted="maxFailures after five in a row"
)
def test_a_script_that_asks_for_a_restart_gets_it_and_no_budget_pays(runs: LocalRuns) -> None:
    ended = ending(runs, "trainrun.RetryError('the server is busy')", attempts=2, maxFailures=0)
    assert ended.code == 0, ended.out[-3000:]
    assert [(it["cause"], it["counted"]) for it in ended.incidents] == [("RetryError", False)] * 2
    assert ended.status["failures"]["text"] == "0/0"


def test_a_rule_with_a_pattern_that_is_none_is_refused_before_anything_starts(
    runs: LocalRuns,
) -> None:
    runs.spec = {"failurePolicy": {"rules": [{"action": "Restart", "messagePattern": "a("}]}}
    ended = runs.run(json_lines=False)
    assert ended.code == 2
    assert "spec.failurePolicy.rules[0].messagePattern" in ended.err
    assert "must be a regular expression in the syntax of RE2" in ended.err
    assert not runs.state.exists()


@pytest.mark.case(
    "script", "A library decorates the traceback of an exception", counted="its cause"
)
@pytest.mark.slow
@pytest.mark.parametrize("bar", later_rare(["bar", ""], by="tests/worlds/local/test_rules.py"))
def test_rank_1_dies_of_its_batch_is_blamed_and_its_rule_matches(runs: LocalRuns, bar: str) -> None:
    """PyTorch puts the rank before each line of the traceback; nothing imports the library."""
    runs.script, runs.env = "collective.py", {"BAR": bar}
    rule = {"exceptions": ["ValueError"], "action": "FailRun"}
    runs.spec = {"failurePolicy": {"maxFailures": 3, "backoff": AT_ONCE, "rules": [rule]}}
    ended = runs.run()
    assert ended.code == 1
    assert ended.condition("Failed")["reason"] == "FailedByRule", ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["rank"], incident["exception"]) == (1, ["ValueError"])
    # The threads of gloo may abort the interpreter while it ends.
    assert incident["message"].startswith(("rank 1 exited with code 1", "rank 1 was killed by"))
    assert "ValueError: a bad batch" in incident["message"]
