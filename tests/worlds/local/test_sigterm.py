"""Scripts that nobody changed: they save on SIGTERM in a folder of their own, and go on from it."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually
from tests.support.levels import later_rare
from tests.worlds.local.local_runs import LocalRuns


def saved(runs: LocalRuns, rank: int) -> list[int]:
    """The steps that a rank has saved because it was told to."""
    return [step for _, step, what in runs.steps(rank) if what == "saved on [15]"]


@pytest.mark.case(
    "nodes",
    "A worker gets a notice, and the script never asks should_save()",
    counted="maxPreemptions",
)
@pytest.mark.parametrize("end", later_rare(["143", "0"], by="tests/core/run/test_sigterm.py"))
def test_a_notice_costs_a_script_that_saves_on_sigterm_no_step_and_nothing_but_a_preemption(
    runs: LocalRuns, end: str
) -> None:
    runs.script = "own_folder.py"
    runs.spec = {"failurePolicy": {"maxFailures": 0, "maxPreemptions": 1}}
    runs.env = {"STEPS": "200", "REPORTS": "1", "END": end}
    ended = runs.run("--fault", "preempt rank=1 step=20 grace=60s")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["cause"], incident["budget"]) == ("Preempted", "preemptions")
    assert ended.status["failures"]["text"] == "0/0"
    assert saved(runs, 1)[0] >= 20
    # The worker of rank 0 had no notice, and its rank had the signal all the same.
    for rank in (0, 1):
        (step,) = saved(runs, rank)
        assert runs.begins(rank) == [0, step]
        assert runs.steps(rank)[-1][1:] == (max(200, step), "done")


def test_a_suspended_script_that_never_reports_goes_on_from_where_it_saved_on_sigterm(
    runs: LocalRuns,
) -> None:
    runs.script, runs.spec = "own_folder.py", {"workers": {"independentRanks": True}}
    runs.env = {"STEPS": "150"}
    driver = runs.start()
    eventually(lambda: runs.begins(0) and runs.begins(1), what="both ranks have begun")
    driver.interrupt()
    stopped = driver.end()
    assert stopped.code == 130, stopped.err
    assert [len(saved(runs, rank)) for rank in (0, 1)] == [1, 1]
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    assert ended.incidents == []
    for rank in (0, 1):
        assert runs.begins(rank) == [0, *saved(runs, rank)]


def test_a_script_gets_no_sigterm_where_its_spec_says_stop(runs: LocalRuns) -> None:
    runs.script = "own_folder.py"
    runs.spec = {"checkpoint": {"onNotice": "Stop"}}
    runs.env = {"STEPS": "100000"}
    driver = runs.start()
    eventually(lambda: runs.begins(0) and runs.begins(1), what="both ranks have begun")
    driver.interrupt()
    assert driver.end().code == 130
    assert [saved(runs, rank) for rank in (0, 1)] == [[], []]
