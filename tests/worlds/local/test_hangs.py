"""A rank that sleeps for ever inside a step, with real processes."""

from __future__ import annotations

from tests.worlds.local.local_runs import LocalRuns

WATCHED = {"heartbeatTimeout": "6s", "progressTimeout": "5s"}


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
    assert incident["message"] == (
        "no step for 5 s (spec.health.progressTimeout): rank 1 stands at step 3, 1 other at 4"
    )
    assert incident["detectSeconds"] < 30
    assert incident["resumedFrom"]["step"] == 3


def test_a_long_section_is_no_hang(runs: LocalRuns) -> None:
    runs.spec = {"health": WATCHED, "failurePolicy": {"maxFailures": 0}}
    runs.script, runs.env = "hanging.py", {"SECTION_AT": "4", "SECTION": "12"}
    ended = runs.run()
    assert (ended.code, ended.incidents) == (0, [])
