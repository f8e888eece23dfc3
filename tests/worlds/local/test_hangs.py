"""A rank that sleeps for ever inside a step, with real processes."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns

WATCHED = {"heartbeatTimeout": "6s", "progressTimeout": "5s"}


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
def test_a_rank_that_sleeps_in_a_step_is_named_and_the_run_goes_on(runs: LocalRuns) -> None:
    runs.spec = {
        "health": WATCHED,
        "failurePolicy": {"maxFailures": 1, "backoff": {"initial": "0s", "max": "0s"}},
    }
    runs.script, runs.env = "hanging.py", {"HANG_AT": "4"}
    ended = runs.run()
    assert ended.code == 0
    (incident,) = ended.incidents
    assert (incident["cause"], incident["rank"], incident["budget"]) == ("Hung", 1, "failures")
    message = incident["message"]
    assert message.startswith(
        "no step for 5 s (spec.health.progressTimeout): rank 1 is at step 3, 1 other at 4; "
        "cause unknown: rank 1 is in `<module>` (hanging.py:"
    )
    assert "; 1 other in `barrier` (hanging.py:" in message
    assert incident["detectSeconds"] < 30
    assert incident["resumedFrom"]["step"] == 3


def test_a_long_section_is_no_hang(runs: LocalRuns) -> None:
    runs.spec = {"health": WATCHED, "failurePolicy": {"maxFailures": 0}}
    runs.script, runs.env = "hanging.py", {"SECTION_AT": "4", "SECTION": "12"}
    ended = runs.run()
    assert (ended.code, ended.incidents) == (0, [])


@pytest.mark.case("processes", "A process hangs, and no timeout is set")
def test_a_rank_that_stands_still_without_a_timeout_is_told_and_left_alone(runs: LocalRuns) -> None:
    runs.spec = {"failurePolicy": {"maxFailures": 0}}
    runs.script, runs.env = "hanging.py", {"PAUSE_AT": "4"}
    run = runs.start()
    told = run.wait_for_event("Hung")
    (runs.journal / "go").touch()
    ended = run.end()
    assert (ended.code, ended.incidents) == (0, [])
    assert told["type"] == "Warning"
    message = told["message"]
    assert message.startswith("rank 1 has spent ")
    where = "cause unknown: rank 1 is in `<module>` (hanging.py:"
    assert f' in the long section "wait" (limit 1 s); {where}' in message, message
    assert ") (worker tiny-1-1 on node tiny-1-1). Only observed: spec.health.hang" in message
    assert [e["reason"] for e in ended.history].count("Hung") == 1
    assert "Hung" not in [c["type"] for c in ended.status["conditions"]]
