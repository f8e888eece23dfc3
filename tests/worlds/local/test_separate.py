"""Several trainings instead of one, by `trainrun run` and scripts that do not know the library."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.mark.case(
    "processes",
    "A launcher starts a group of its own in several processes",
    counted="the run fails",
)
def test_a_launcher_in_a_script_file_does_not_succeed(runs: LocalRuns) -> None:
    runs.launcher, runs.script = ("bash",), "apart.sh"
    ended = runs.run()
    assert ended.code == 1
    failed = ended.condition("Failed")
    assert failed["reason"] == "SeparateTrainings"
    assert failed["message"].startswith(
        "2 of the 2 processes have a rank 0 of their own, started by bash: these are separate"
    )
    assert "SeparateTrainings" in [event["reason"] for event in ended.history]
    assert ended.incidents == []


@pytest.mark.case("processes", "None of several processes meets another")
def test_ranks_that_never_meet_are_no_plain_success(runs: LocalRuns) -> None:
    runs.launcher, runs.script = ("python", "-c", "print('done')"), ""
    ended = runs.run(json_lines=False)
    assert ended.code == 3
    assert "Run tiny ended after" in ended.out
    assert (
        "but may not have succeeded: all 2 processes ended with exit code 0, but none of the 2 "
        "processes has opened MASTER_PORT"
    ) in " ".join(ended.out.split())
    again = runs.run()
    assert again.code == 3


def test_ranks_that_are_meant_to_work_apart_succeed(runs: LocalRuns) -> None:
    runs.launcher, runs.script = ("python", "-c", "print('done')"), ""
    runs.spec = {"workers": {"independentRanks": True}}
    ended = runs.run()
    assert (ended.code, ended.condition("Complete")["reason"]) == (0, "Succeeded")


def test_ranks_that_meet_for_a_moment_succeed(
    runs: LocalRuns,
) -> None:
    runs.script = "meets.py"
    ended = runs.run()
    assert (ended.code, ended.condition("Complete")["reason"]) == (0, "Succeeded")


def test_ranks_that_only_ask_for_their_place_succeed(runs: LocalRuns) -> None:
    runs.launcher, runs.script = ("python", "-c", "import trainrun; trainrun.get_context()"), ""
    ended = runs.run()
    assert (ended.code, ended.condition("Complete")["reason"]) == (0, "Succeeded")
