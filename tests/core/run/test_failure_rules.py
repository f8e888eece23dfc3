"""failurePolicy.rules: which rule decides about an incident, and what follows from it."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_config,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun_operator.api.run.rules import FailureRule, SignalName
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker
from trainrun_operator.core.run.causes import SIGNAL_NAMES
from trainrun_operator.core.run.incidents import ledger
from trainrun_operator.core.run.incidents.ledger import UNCOUNTED_TRIES

if TYPE_CHECKING:
    from trainrun_operator.core.run.boundary import Plan


def rules(*given: dict[str, Any]) -> tuple[FailureRule, ...]:
    return tuple(
        FailureRule.model_validate_json(FailureRule(**rule).model_dump_json()) for rule in given
    )


def failed(plan: Plan) -> tuple[str, str]:
    mark = plan.status.condition("Failed")
    return (mark.reason, mark.message) if mark is not None else ("", plan.reason)


def next_attempt(scene: WorkerObservation) -> WorkerObservation:
    """What the core makes of the loss: the verdict, or the next attempt."""
    scene = scene.after(scene.plan)
    scene = scene.waiting().resolved().without_backoff()
    return scene.after(scene.plan)


def test_the_api_names_every_signal_that_the_core_knows() -> None:
    assert {signal.Signals[name].value: name for name in get_args(SignalName)} == SIGNAL_NAMES


# ------------------------------------------------------------------------------ what a rule matches


EXITED = {
    "exit_code": 3,
    "rank": 5,
    "container": "worker",
    "exception": ("torch.OutOfMemoryError", "RuntimeError", "Exception", "BaseException"),
    "message": "rank 5 exited with code 3: torch.OutOfMemoryError: CUDA out of memory",
}
KILLED = {"exit_code": 139, "rank": 0, "container": "worker", "message": "killed by SIGSEGV"}


@pytest.mark.parametrize(
    ("matchers", "incident", "agrees"),
    [
        ({}, EXITED, True),
        ({}, KILLED, True),
        ({"exit_codes": (2, 3)}, EXITED, True),
        ({"exit_codes": (2, 4)}, EXITED, False),
        ({"exit_codes": (139,)}, KILLED, True),
        ({"signals": ("SIGSEGV",)}, KILLED, True),
        ({"signals": ("SIGKILL",)}, KILLED, False),
        ({"signals": ("SIGHUP", "SIGSEGV")}, EXITED, False),
        # A command of a container that exits with 139 is no process that we have seen die.
        ({"signals": ("SIGSEGV",)}, KILLED | {"rank": None}, False),
        ({"exceptions": ("torch.OutOfMemoryError",)}, EXITED, True),
        ({"exceptions": ("OutOfMemoryError",)}, EXITED, True),
        ({"exceptions": ("RuntimeError",)}, EXITED, True),
        ({"exceptions": ("jax.OutOfMemoryError",)}, EXITED, False),
        ({"exceptions": ("MemoryError",)}, EXITED, False),
        ({"exceptions": ("Exception",)}, KILLED, False),
        ({"message_pattern": "CUDA out of mem"}, EXITED, True),
        ({"message_pattern": "(?i)cuda OUT of"}, EXITED, True),
        ({"message_pattern": "^CUDA"}, EXITED, False),
        ({"causes": ("AppError", "Silent")}, EXITED, True),
        ({"causes": ("Silent",)}, EXITED, False),
        ({"ranks": (0, 5)}, EXITED, True),
        ({"ranks": (1,)}, EXITED, False),
        ({"ranks": (5,)}, EXITED | {"rank": None}, False),
        ({"containers": ("worker",)}, EXITED, True),
        ({"containers": ("fetch",)}, EXITED, False),
        ({"exit_codes": (3,), "ranks": (5,), "causes": ("AppError",)}, EXITED, True),
        ({"exit_codes": (3,), "ranks": (6,), "causes": ("AppError",)}, EXITED, False),
    ],
)
def test_all_matchers_of_a_rule_must_agree(
    matchers: dict[str, Any], incident: dict[str, Any], agrees: bool
) -> None:
    config = a_config(rules=rules({"action": "FailRun", **matchers}), max_failures=9)
    verdict = ledger.judge(TrainRunStatus(), an_incident(**incident), config)
    assert (verdict is not None) is agrees


def test_a_text_that_no_encoding_can_hold_is_searched_all_the_same() -> None:
    config = a_config(rules=rules({"action": "FailRun", "message_pattern": "bad"}))
    verdict = ledger.judge(TrainRunStatus(), an_incident(message="\ud800 bad"), config)
    assert verdict is not None
    assert verdict.reason == "FailedByRule"


def test_a_pattern_that_takes_others_for_ever_takes_no_time() -> None:
    config = a_config(rules=rules({"action": "FailRun", "message_pattern": "(a*)*(a*)*(a*)*b"}))
    verdict = ledger.judge(TrainRunStatus(), an_incident(message="a" * 1000), config)
    assert verdict is not None
    assert verdict.reason == "MaxFailuresExceeded"


# ------------------------------------------------------------------ what other schedulers' rules do

FAIL, AGAIN, FREE = ({"action": action} for action in ("FailRun", "Restart", "RestartUncounted"))


@pytest.mark.parametrize(
    ("given", "codes", "verdict", "counted", "restarts"),
    [
        pytest.param([], [1], "MaxFailuresExceeded", 1, 0, id="no rules: the budget decides"),
        pytest.param([], [1, 1], "", 2, 2, id="no rules, room for two"),
        pytest.param([FAIL], [1], "FailedByRule", 1, 0, id="a rule without matchers fails at once"),
        pytest.param([AGAIN], [1], "MaxFailuresExceeded", 1, 0, id="a restart counts"),
        pytest.param([FREE], [1, 1, 1], "", 0, 3, id="a restart that is ignored by the budget"),
        pytest.param(
            [FAIL | {"exit_codes": (3,)}], [3], "FailedByRule", 1, 0, id="this code fails it"
        ),
        pytest.param([FAIL | {"exit_codes": (3,)}], [4, 4], "", 2, 2, id="another code"),
        pytest.param(
            [FREE | {"exit_codes": (143, 3)}, FAIL], [3, 3, 1], "FailedByRule", 1, 2,
            id="codes that are free, and a last rule for the rest",
        ),
        pytest.param(
            [FAIL | {"exit_codes": (3,)}, FREE | {"exit_codes": (3,)}], [3], "FailedByRule", 1, 0,
            id="the first of two that match",
        ),
        pytest.param(
            [FREE | {"exit_codes": (3,)}, FAIL | {"exit_codes": (3,)}], [3], "", 0, 1,
            id="and the other way round",
        ),
        pytest.param(
            [FREE | {"exit_codes": (3,)}], [3, 1, 3, 1], "", 2, 4, id="free ones leave the budget"
        ),
        pytest.param(
            [FREE | {"exit_codes": (3,)}], [3, 1, 1, 1], "MaxFailuresExceeded", 3, 3,
            id="after free ones the budget is whole",
        ),
        pytest.param(
            [FAIL | {"ranks": (0,), "exit_codes": (3,)}], [3], "FailedByRule", 1, 0,
            id="of this target",
        ),
        pytest.param(
            [FAIL | {"ranks": (1,), "exit_codes": (3,)}], [3], "", 1, 1, id="of another target"
        ),
        pytest.param(
            [FAIL | {"message_pattern": "quota of \\w+ exceeded"}], [1], "", 1, 1,
            id="a message that does not match",
        ),
    ],
)  # fmt: skip
def test_cases_of_failure_policies_elsewhere(
    given: list[dict[str, Any]], codes: list[int], verdict: str, counted: int, restarts: int
) -> None:
    budget = 0 if verdict == "MaxFailuresExceeded" and len(codes) == 1 else 2
    scene = a_run(max_failures=budget, rules=rules(*given))
    for attempt, code in enumerate(codes, start=1):
        assert not scene.status.finished
        scene = scene.running(attempt).with_all(steps=(None,)).with_exit(0, code=code)
        scene = next_attempt(scene)
    mark = scene.status.condition("Failed")
    assert (mark.reason if mark else "") == verdict
    assert (scene.status.failures.counted, scene.status.restarts) == (counted, restarts)


def test_a_preemption_that_a_rule_lets_pass_leaves_the_budget_alone() -> None:
    given = rules({"action": "RestartUncounted", "causes": ("Preempted", "NodeLost")})
    scene = a_run(max_failures=0, rules=given)
    for attempt, cause in enumerate([Cause.PREEMPTED, Cause.NODE_LOST], start=1):
        scene = next_attempt(scene.running(attempt).lost(0, cause))
    assert scene.status.failures.counted == 0
    assert scene.status.attempt == 3


def test_an_init_container_is_matched_by_its_name_and_its_exit_code() -> None:
    given = rules({"action": "FailRun", "containers": ("fetch",), "exit_codes": (7,)})
    incident = an_incident(Cause.START_FAILED, container="fetch", exit_code=7)
    config = a_config(rules=given, max_failures=9)
    verdict = ledger.judge(TrainRunStatus(), incident, config)
    assert verdict is not None
    assert verdict.reason == "FailedByRule"


# --------------------------------------------------------------------------------- what is written


@pytest.mark.case(
    "decisions", "A rule of failurePolicy.rules matches an incident", counted="what its action says"
)
def test_the_verdict_of_a_rule_names_the_rule_and_what_happened() -> None:
    given = rules(
        {"action": "Restart", "exit_codes": (4,)},
        {"action": "FailRun", "name": "bad-data", "exit_codes": (3,)},
    )
    scene = a_run(max_failures=-1, rules=given).running().with_exit(1, code=3)
    opened = scene.plan
    assert opened.events[0].message == (
        "attempt 1 ended: AppError: rank 1 exited with code 3: no exception was seen; "
        "spec.failurePolicy.rules[1] (bad-data) says FailRun"
    )
    assert failed(scene.after(opened).plan) == (
        "FailedByRule",
        "rank 1 exited with code 3: no exception was seen (AppError); spec.failurePolicy.rules[1] "
        "(bad-data) says FailRun",
    )
    (incident,) = scene.after(opened).plan.status.incidents
    assert (incident.rule, incident.action) == ("rules[1] (bad-data)", "FailRun")


def test_an_uncounted_restart_shows_its_rule_in_the_status() -> None:
    given = rules({"action": "RestartUncounted", "signals": ("SIGKILL",)})
    scene = next_attempt(a_run(rules=given).running().with_exit(0, signal=9))
    (incident,) = scene.status.incidents
    assert (incident.rule, incident.action) == ("rules[0]", "RestartUncounted")
    assert (incident.budget, incident.counted) == ("none", False)


def test_where_no_rule_matches_nothing_of_rules_is_written() -> None:
    given = rules({"action": "FailRun", "exit_codes": (3,)})
    plan = a_run(max_failures=1, rules=given).running().with_exit(0, code=4).plan
    assert plan.status.incident is not None
    assert (plan.status.incident.rule, plan.status.incident.action) == ("", "")
    assert "rules" not in plan.events[0].message


# ------------------------------------------------------------------------------- the bound of five


def test_uncounted_restarts_without_progress_count_after_five_in_a_row() -> None:
    given = rules({"action": "RestartUncounted"})
    scene = a_run(max_failures=1, rules=given)
    counted = []
    for attempt in range(1, UNCOUNTED_TRIES + 3):
        scene = next_attempt(scene.running(attempt).with_all(steps=(None,)).with_exit(0, code=3))
        counted.append(scene.status.failures.counted)
    assert counted == [0, 0, 0, 0, 0, 1, 2]
    assert failed(scene.plan)[0] == "MaxFailuresExceeded" or scene.status.finished


def test_a_new_step_begins_the_row_anew() -> None:
    given = rules({"action": "RestartUncounted"})
    scene = a_run(max_failures=0, rules=given)
    for attempt in range(1, 13):
        stepped = (attempt,) if attempt % 4 == 0 else (None,)
        scene = scene.running(attempt).with_all(steps=stepped).with_exit(0, code=3)
        scene = next_attempt(scene)
    assert not scene.status.finished
    assert scene.status.failures.counted == 0


def test_ends_that_are_free_for_another_reason_do_not_begin_the_row_anew() -> None:
    given = rules({"action": "RestartUncounted", "exit_codes": (3,)})
    config = a_config(rules=given)
    status = TrainRunStatus(fruitless=8, free_ends={"RestartUncounted": 5, "Misread": 2})
    assert ledger.charged(status, an_incident(exit_code=3), config).budget == "failures"


def test_a_cause_that_is_free_at_first_is_charged_once_a_rule_has_let_five_pass() -> None:
    config = a_config(rules=rules({"action": "RestartUncounted"}))
    status = TrainRunStatus(fruitless=6, free_ends={"RestartUncounted": 5})
    incident = an_incident(Cause.RENDEZVOUS_FAILED)
    assert ledger.charged(status, incident, config).budget == "failures"


# ----------------------------------------------------------------------------- the best explanation


def test_a_rule_that_fails_the_run_waits_while_only_collateral_is_known() -> None:
    """The rank that broke the collective may have been lost with its node."""
    given = rules({"action": "FailRun", "causes": ("AppError",)})
    scene = a_run(max_failures=3, rules=given).running()
    scene = scene.with_exit(0, code=1, exception="RuntimeError: Connection reset by peer")
    scene = scene.after(scene.plan, passed=1.0)
    assert scene.plan.reason == "Attributing"
    scene = scene.lost(1, Cause.NODE_LOST, "node n1 is gone")
    scene = scene.after(scene.plan)
    assert scene.status.incident is not None
    assert (scene.status.incident.cause, scene.status.incident.rule) == ("NodeLost", "")
    assert scene.status.ending is not None
    assert not scene.plan.status.finished


def test_an_edit_of_the_rules_decides_about_an_incident_that_is_not_settled() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, code=3)
    scene = scene.after(scene.plan)
    edited = scene.with_config(rules=rules({"action": "FailRun", "exit_codes": (3,)}))
    assert failed(edited.plan)[0] == "FailedByRule"


def test_a_rule_that_an_edit_takes_away_decides_no_longer() -> None:
    given = rules({"action": "FailRun", "exit_codes": (3,)})
    scene = a_run(max_failures=3, rules=given).running().with_exit(0, code=3)
    edited = scene.after(scene.plan).with_config(rules=())
    assert failed(edited.plan)[0] == ""
    incident = edited.plan.status.incident
    assert incident is not None
    assert (incident.rule, incident.action) == ("", "")


LONG = {"message": "x" * 500 + "the end", "exception": ("my.NoData", "LookupError", "Exception")}


@pytest.mark.parametrize(
    ("matcher", "cut"),
    [
        ({"message_pattern": "the end$"}, {"message": "x" * 99 + "…"}),
        ({"exceptions": ("LookupError",)}, {"exception": ("my.NoData", "…")}),
    ],
    ids=["message", "exception"],
)
def test_what_the_status_had_no_room_for_does_not_change_what_a_rule_has_decided(
    matcher: dict[str, Any], cut: dict[str, Any]
) -> None:
    config = a_config(rules=rules({"action": "FailRun", **matcher}))
    incident = ledger.charged(TrainRunStatus(), an_incident(**LONG), config)
    verdict = ledger.judge(TrainRunStatus(), replace(incident, **cut), config)
    assert verdict is not None
    assert verdict.reason == "FailedByRule"


def test_a_rule_decides_about_an_incident_that_was_cut_before_any_rule_has() -> None:
    config = a_config(rules=rules({"action": "FailRun"}))
    verdict = ledger.judge(TrainRunStatus(), an_incident(message="x…"), config)
    assert verdict is not None
    assert verdict.reason == "FailedByRule"


# ---------------------------------------------------------------------------------------- the node


AVOIDING: dict[str, Any] = {"action": "RestartAvoidingNode", "exit_codes": (7,)}


def test_a_restart_that_avoids_the_node_replaces_its_workers_on_another_one() -> None:
    scene = a_run(max_failures=1, rules=rules(AVOIDING)).running().with_exit(0, code=7)
    scene = scene.after(scene.plan).with_all(phase="Idle")
    scene = scene.after(scene.plan)  # whom it deletes stands in the status first
    made = [a for a in scene.plan.actions if isinstance(a, CreateWorker)]
    assert [(a.slot, a.avoid, a.disfavor) for a in made] == [(0, ("node-0",), ("node-0",))]
    gone = [a for a in scene.plan.actions if isinstance(a, DeleteWorker)]
    assert [(a.name, a.reason) for a in gone] == [
        ("run-0-1", "a rule of failurePolicy keeps the run away from its node node-0")
    ]


def test_a_node_is_avoided_for_a_minute_and_then_used_where_there_is_no_other() -> None:
    scene = a_run(max_failures=1, rules=rules(AVOIDING)).running().with_exit(0, code=7)
    scene = scene.after(scene.plan).without(0)
    made = [a for a in scene.after(passed=61.0).plan.actions if isinstance(a, CreateWorker)]
    assert [(a.avoid, a.disfavor) for a in made] == [((), ("node-0",))]


def test_the_worker_that_takes_its_place_is_not_replaced_again() -> None:
    scene = a_run(max_failures=1, rules=rules(AVOIDING)).running().with_exit(0, code=7)
    scene = scene.after(scene.plan).with_all(phase="Idle").without(0)
    scene = scene.plus(a_worker(0, created_for=2, node="node-0"))
    assert [a for a in scene.plan.actions if isinstance(a, DeleteWorker | CreateWorker)] == []


def dismissed(scene: WorkerObservation) -> list[str]:
    """Workers that are deleted by a rule, once whom it deletes stands in the status."""
    for _ in range(3):
        if scene.plan.transition:
            scene = scene.after(scene.plan)
    actions = (a for a in scene.plan.actions if isinstance(a, DeleteWorker))
    return [a.name for a in actions if a.reason.startswith("a rule of failurePolicy keeps")]


def a_consequence() -> WorkerObservation:
    """Rank 0 lost its peer, and the rule is about its exit code; slot 1 has not said a word yet."""
    text = "RuntimeError: Connection closed by peer [10.0.0.2]:41000"
    scene = a_run(max_failures=-1, rules=rules(AVOIDING)).running()
    scene = scene.with_exit(0, code=7, exception=text).silent(1, 20)
    return scene.after(scene.plan).with_agent(0, phase="Idle")


def test_workers_that_are_well_are_not_replaced_for_an_explanation_that_may_still_change() -> None:
    scene = a_consequence()
    incident = scene.status.incident
    assert incident is not None
    assert (incident.collateral, incident.action) == (True, "RestartAvoidingNode")
    assert dismissed(scene) == []
    lost = scene.lost(1, Cause.NODE_LOST, "its node is off")
    lost = lost.after(lost.plan)
    better = lost.status.incident
    assert better is not None
    assert (better.cause, better.action) == ("NodeLost", "")
    assert dismissed(lost) == []


def test_they_are_replaced_once_nobody_else_can_explain_it() -> None:
    assert dismissed(a_consequence().with_all(phase="Idle").silent(1, 1)) == ["run-0-1"]


def test_the_next_attempt_waits_until_it_is_known_which_node_to_avoid() -> None:
    rule = {"action": "RestartAvoidingNode", "causes": ("Silent",)}
    scene = a_run(max_failures=-1, heartbeat_timeout=seconds(10), rules=rules(rule)).running()
    scene = scene.with_worker(0, node="node-1").silent(1, 11)
    scene = scene.after(scene.plan).with_agent(0, phase="Idle")
    new = a_worker(1, 2, node="node-2", agent=an_agent(1, 2, held=scene.held))
    scene = scene.plus(new).resolved().without_backoff()
    assert (scene.plan.reason, scene.plan.message) == (
        "Attributing",
        "which node to avoid is not certain yet; waiting for the state of the node",
    )
    assert dismissed(scene) == []
    assert dismissed(scene.after(passed=41.0).with_agent(0, phase="Idle")) == ["run-0-1"]
