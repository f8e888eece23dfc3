"""`trainrun run` from end to end, with real agents and a script that uses the real library."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import LocalRuns


def budget(failures: int, **policy: object) -> dict[str, object]:
    return {"failurePolicy": {"maxFailures": failures, **policy}}


@pytest.mark.case("processes", "All ranks end with 0")
def test_a_run_succeeds_and_its_last_checkpoint_is_committed(runs: LocalRuns) -> None:
    ended = runs.run()
    assert ended.code == 0
    assert ended.status["phase"] == "Succeeded"
    assert ended.status["checkpoint"]["step"] == 20
    assert ended.status["progress"]["metrics"] == {"loss": 0.05}
    assert [event["reason"] for event in ended.history] == ["Accepted", "Started", "Succeeded"]
    assert runs.our_processes() == []


@pytest.mark.case("processes", "A process is killed by a signal", counted="maxFailures")
def test_a_killed_rank_is_one_incident_and_the_run_resumes_from_the_newest_checkpoint(
    runs: LocalRuns,
) -> None:
    runs.spec = budget(1)
    runs.env = {**runs.commit_before(8, of=5), "STAY_AT": "8"}
    ended = runs.run("--fault", "kill rank=1 step=8")
    assert ended.code == 0
    (incident,) = ended.incidents
    assert (incident["cause"], incident["rank"], incident["exitCode"]) == ("AppError", 1, 137)
    assert (incident["counted"], incident["budget"]) == (True, "failures")
    assert incident["message"] == "rank 1 was killed by SIGKILL"
    assert incident["resumedFrom"] == {"step": 5, "attempt": 1}
    assert incident["lostSteps"] >= 3
    assert ended.status["failures"]["text"] == "1/1"
    assert runs.begins(0) == runs.begins(1) == [0, 5]


def test_the_failure_after_the_last_allowed_one_fails_the_run(runs: LocalRuns) -> None:
    runs.spec = budget(1)
    runs.env = {**runs.commit_before(7, of=5), "FAIL_AT": "7"}
    ended = runs.run()
    assert ended.code == 1
    assert [incident["counted"] for incident in ended.incidents] == [True, True]
    assert ended.condition("Failed")["reason"] == "MaxFailuresExceeded"
    assert runs.begins() == [0, 5]
    assert runs.our_processes() == []


def test_a_culprit_that_takes_its_time_to_end_is_blamed_and_not_the_peer_that_died_of_it(
    runs: LocalRuns,
) -> None:
    runs.script = "slow_to_go.py"
    runs.spec = budget(1)
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["rank"], incident["exitCode"]) == (1, 3)
    assert incident["message"] == "rank 1 exited with code 3: no exception was seen"


@pytest.mark.case(
    "processes", "A process ends with an exception or an exit code", counted="maxFailures"
)
def test_the_end_of_a_failed_run_begins_with_the_culprit(runs: LocalRuns) -> None:
    runs.env = {"FAIL_AT": "3"}
    ended = runs.run(json_lines=False)
    assert ended.code == 1
    report = ended.out[ended.out.index("\n\n") :].strip().splitlines()
    message = "exited with code 1: ValueError: the loss became negative in step 3"
    assert report[0].startswith("Run tiny failed")
    assert "MaxFailuresExceeded" in report[0]
    told = " ".join(" ".join(report).split())
    assert told.index(message) < told.index("Last lines of rank 1 in attempt 1:")
    assert told.index("Last lines of rank 1") < told.index(" attempts 1")
    assert told.count(f"rank 1 {message}") == 1
    assert "    | Traceback (most recent call last):" in report
    assert sum("Traceback" in line for line in report) == 1


@pytest.mark.case(
    "nodes", "A worker gets a notice (SIGTERM, eviction, reclaim)", counted="maxPreemptions"
)
def test_a_preempted_worker_saves_first_and_hardly_a_step_is_lost(runs: LocalRuns) -> None:
    runs.spec = budget(0, maxPreemptions=1)
    # Steps long enough that a busy machine stops the training within one.
    runs.env = {"EVERY": "1000", "PAUSE": "0.3", "STEPS": "20"}
    ended = runs.run("--fault", "preempt rank=1 step=10 grace=10s")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["cause"], incident["budget"]) == ("Preempted", "preemptions")
    assert incident["lostSteps"] in (0, 1)
    asked = [step for _, step, what in runs.steps(0) if what == "asked"]
    assert asked
    assert runs.begins(0)[1] == runs.begins(1)[1] == asked[0]
    assert ended.status["failures"]["counted"] == 0


def test_a_worker_whose_script_never_asks_is_replaced_without_waiting_for_its_grace(
    runs: LocalRuns,
) -> None:
    runs.spec = budget(1)
    runs.env = {**runs.commit_before(10, of=5), "MODE": "deaf", "PAUSE": "0.05", "STEPS": "100"}
    ended = runs.run("--fault", "preempt rank=1 step=10 grace=120s")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["cause"], incident["counted"]) == ("Preempted", True)
    assert incident["message"].endswith(
        "; the script never called trainrun.should_save(): its processes get SIGTERM and 90 s to "
        "end"
    )
    assert runs.begins()[1] >= 5


@pytest.mark.case("nodes", "A node is lost", counted="maxPreemptions")
def test_a_lost_node_is_replaced_and_the_run_resumes(runs: LocalRuns) -> None:
    runs.spec = budget(1)
    runs.env = {**runs.commit_before(12, of=10), "STAY_AT": "14"}
    ended = runs.run("--fault", "node-loss rank=1 step=12")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert incident["cause"] == "NodeLost"
    assert incident["message"].startswith("node tiny-1-1 was lost by --fault (rank 1, step 12)")
    assert runs.begins() == [0, 10]
    assert not (runs.state / "nodes" / "tiny-1-1").exists()


def test_a_rank_that_never_reports_is_killed_when_another_reports_the_step(
    runs: LocalRuns,
) -> None:
    runs.spec = budget(1)
    runs.env = {"MODE": "rank-0-only", "PAUSE": "0.1", "STEPS": "40", "EVERY": "1000"}
    ended = runs.run("--fault", "kill rank=1 step=3")
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["cause"], incident["rank"]) == ("AppError", 1)


def test_two_kills_of_a_rank_are_two_incidents(runs: LocalRuns) -> None:
    runs.spec = budget(2)
    ended = runs.run("--fault", "kill rank=1 step=8", "--fault", "kill rank=1 step=13")
    assert ended.code == 0, ended.out[-3000:]
    assert [incident["cause"] for incident in ended.incidents] == ["AppError", "AppError"]


def test_a_kill_strikes_the_worker_that_replaced_a_lost_one(runs: LocalRuns) -> None:
    runs.spec = budget(2)
    runs.env = {"STEPS": "60", "PAUSE": "0.05", "STAY_AT": "14"}
    ended = runs.run("--fault", "node-loss rank=1 step=12", "--fault", "kill rank=1 step=50")
    assert ended.code == 0, ended.out[-3000:]
    assert {incident["cause"] for incident in ended.incidents} == {"NodeLost", "AppError"}


def test_a_shell_finds_the_python_that_runs_trainrun(runs: LocalRuns) -> None:
    worker = {"name": "worker", "image": "unused", "command": ["bash", "-c", "type -p python"]}
    runs.spec = {"workers": {"template": {"spec": {"containers": [worker]}}}}
    ended = runs.run(env={"PATH": "/usr/bin:/bin"}, json_lines=False)
    assert f"[rank 0] {Path(sys.executable).parent}/python\n" in ended.out


def test_a_command_of_torchrun_runs_as_it_stands(runs: LocalRuns) -> None:
    """It was started as it is, made a rendezvous of its own, and its ranks were nobody's."""
    runs.launcher = ("torchrun", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d")
    runs.spec = budget(1)
    ended = runs.run("--fault", "kill rank=3 step=8")
    assert ended.code == 0, ended.err
    assert "torchrun: --rdzv-backend: ignored, since TrainRun does rendezvous" in ended.err
    assert sorted(path.name for path in runs.journal.iterdir()) == [
        f"rank-{rank}.txt" for rank in range(4)
    ]
    assert [incident["message"] for incident in ended.incidents] == ["rank 3 was killed by SIGKILL"]


def test_no_socket_is_left_in_the_temporary_folder(runs: LocalRuns) -> None:
    temporary = runs.folder / "tmp"
    temporary.mkdir()
    runs.folder = runs.folder / ("x" * 100)
    runs.folder.mkdir()
    ended = runs.run("--fault", "kill rank=1 step=8", env={"TMPDIR": str(temporary)})
    assert ended.incidents
    assert list(temporary.iterdir()) == []


def test_a_fault_that_never_struck_is_named_and_ends_with_3(runs: LocalRuns) -> None:
    ended = runs.run("--fault", "kill rank=1 step=500", json_lines=False)
    assert ended.code == 3
    assert "Run tiny succeeded" in ended.out
    assert ended.err == (
        'error: --fault "kill rank=1 step=500" never struck: no rank reported step 500; '
        "the last one was 20\n"
    )
    again = runs.run("--fault", "kill rank=1 step=5")
    assert again.code == 3
    assert again.status["phase"] == "Succeeded"
    assert again.err.endswith('"kill rank=1 step=5" never struck: the run had already succeeded\n')


def test_a_fault_that_never_struck_does_not_hide_that_the_run_failed(runs: LocalRuns) -> None:
    runs.env = {"FAIL_AT": "3"}
    # Beyond the last step: rank 0 may get that far before the death of rank 1 is noticed.
    ended = runs.run("--fault", "kill rank=0 step=500")
    assert ended.code == 1
    assert '--fault "kill rank=0 step=500" never struck: no rank reported step 500' in ended.err


@pytest.mark.case("operator", "Ctrl-C, SIGTERM or a closed terminal")
def test_ctrl_c_saves_and_stops_and_the_same_command_continues(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "80", "PAUSE": "0.05", "EVERY": "1000"}
    driver = runs.start()
    driver.wait_for_step(5)
    driver.interrupt()
    ended = driver.end()
    assert ended.code == 130
    assert ended.status["phase"] == "Suspended"
    assert ended.incidents == []
    saved = ended.status["checkpoint"]["step"]
    assert runs.our_processes() == []

    again = runs.run()
    assert again.code == 0
    assert runs.begins() == [0, saved]
    assert again.status["failures"]["counted"] == 0


def test_ctrl_c_tells_how_to_continue(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "2000", "PAUSE": "0.05"}
    driver = runs.start("--replicas", "1", json_lines=False)
    eventually(lambda: "begins at step 0" in driver.out.read_text(), timeout=60)
    driver.interrupt()
    ended = driver.end()
    assert ended.code == 130
    assert "saving a checkpoint and stopping; press Ctrl-C again to stop at once" in ended.out
    assert f"continue with: trainrun run {runs.folder}/trainrun.yaml --replicas 1" in ended.out


def test_a_run_that_its_file_suspends_tells_what_to_change(runs: LocalRuns) -> None:
    runs.spec = {"suspend": True}
    ended = runs.run(json_lines=False)
    assert ended.code == 130
    file = runs.folder / "trainrun.yaml"
    assert f"continue with: spec.suspend: false in {file}, then trainrun run {file}" in ended.out


def test_ctrl_c_twice_stops_at_once_and_nothing_is_counted_later(runs: LocalRuns) -> None:
    # Neither saves when asked to nor ends by SIGTERM: only the second interrupt can end it.
    runs.env = {"STEPS": "60", "PAUSE": "0.05", "MODE": "stubborn"}
    driver = runs.start()
    eventually(lambda: runs.begins(0) == runs.begins(1) == [0])
    driver.interrupt()
    eventually(lambda: "Ctrl-C again" in driver.out.with_suffix(".err").read_text())
    driver.interrupt()
    assert driver.end().code == 130
    assert runs.our_processes() == []

    again = runs.run()
    assert again.code == 0
    assert [incident["counted"] for incident in again.incidents] in ([], [False])


@pytest.mark.case("operator", "`trainrun run` is started twice")
def test_a_second_driver_is_refused_and_names_the_first(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "2000"}
    driver = runs.start()
    driver.wait_for_step(1)
    second = runs.run()
    assert second.code == 2
    assert f"run tiny is being led by process {driver.process.pid} on " in second.err
    driver.interrupt()
    assert driver.end().code == 130


def test_a_finished_run_says_so(runs: LocalRuns) -> None:
    assert runs.run().code == 0
    again = runs.run(json_lines=False)
    assert again.code == 0
    assert "run tiny has already succeeded (step 20; its last checkpoint is file://" in again.out
    assert runs.begins() == [0]


def test_a_finished_run_that_was_removed_from_its_storage_starts_again(runs: LocalRuns) -> None:
    import shutil

    assert runs.run().code == 0
    shutil.rmtree(runs.storage / "tiny")
    again = runs.run()
    assert again.code == 0
    assert "no longer exists; starting from scratch" in again.err
    assert runs.begins() == [0, 0]


def test_a_run_that_failed_continues_with_fresh_budgets(runs: LocalRuns) -> None:
    runs.env = {**runs.commit_before(8, of=5), "FAIL_AT": "8"}
    assert runs.run().code == 1
    runs.env = {}
    again = runs.run()
    assert again.code == 0
    assert (
        "the run failed before (MaxFailuresExceeded); it continues from its newest good checkpoint "
        "with fresh budgets"
    ) in again.err
    assert runs.begins() == [0, 5]
    assert again.incidents == []
    assert again.status["attempt"] == 2


def test_a_run_that_failed_without_a_checkpoint_is_promised_none(runs: LocalRuns) -> None:
    runs.env = {"FAIL_AT": "1"}
    failed = runs.run()
    message = failed.condition("Failed")["message"]
    assert message.endswith("; the run resumes once the limit is raised")
    runs.env = {}
    again = runs.run()
    assert "(MaxFailuresExceeded); it continues with fresh budgets" in again.err
    assert runs.begins() == [0, 0]


def test_storage_that_is_in_use_already_fails_where_that_was_asked_for(runs: LocalRuns) -> None:
    import shutil

    assert runs.run().code == 0
    (runs.storage / "tiny" / "finished.json").unlink()
    shutil.rmtree(runs.state)
    runs.spec = {"storage": {"onExisting": "Fail"}}
    again = runs.run()
    assert again.code == 1
    assert again.condition("Failed")["reason"] == "StorageNotEmpty"


@pytest.mark.case(
    "processes",
    "The master port is taken or cannot be reached before the first step",
    counted="maxFailures after three in a row",
)
def test_a_master_port_in_use_costs_nothing_and_another_one_is_taken(runs: LocalRuns) -> None:
    runs.script = "port_in_use.py"
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert (incident["cause"], incident["counted"]) == ("RendezvousFailed", False)


@pytest.mark.case("script", "The script never reports")
def test_a_script_that_never_reports_is_told_what_it_misses(runs: LocalRuns) -> None:
    runs.env = {"MODE": "silent"}
    ended = runs.run(json_lines=False)
    assert ended.code == 0
    assert "  steps        none reported\n" in ended.out
    assert "no step was ever reported: unless the script resumes from its own folder" in ended.out
    assert "Call trainrun.report(step=..., checkpoint=...) in the training loop" in ended.out


@pytest.mark.case("script", "The script ignores get_checkpoint()")
def test_a_script_that_ignores_the_checkpoint_is_told_so(runs: LocalRuns) -> None:
    runs.spec = budget(1)
    committed = runs.storage / "tiny/checkpoints/step-000000005-attempt-1/manifest.json"
    runs.env = {"MODE": "ignore-checkpoint", "WAIT_BEFORE": "8", "WAIT_FOR": str(committed)}
    ended = runs.run("--fault", "kill rank=1 step=8")
    told = next(event for event in ended.history if event["reason"] == "ResumeIgnored")
    assert told["type"] == "Warning"
    assert "get_checkpoint()" in told["message"]


@pytest.mark.case("script", "Only rank 0 reports, without whole=True")
def test_when_only_rank_0_reports_the_others_are_named(runs: LocalRuns) -> None:
    runs.env = {"MODE": "rank-0-only", "STEPS": "80", "PAUSE": "0.05"}
    ended = runs.run(env={"TRAINRUN_CHECKPOINT_PATIENCE": "1"})
    told = next(event for event in ended.history if event["reason"] == "CheckpointWaiting")
    assert "rank 1" in told["message"]
    assert "whole=True" in told["message"]


def test_a_warning_is_told_once_and_not_again_by_each_agent(runs: LocalRuns) -> None:
    runs.env = {"MODE": "ignore-checkpoint", "STEPS": "40", "FAIL_AT": "12", "FAIL_ATTEMPTS": "1"}
    runs.spec = budget(1)
    ended = runs.run(json_lines=False)
    assert ended.code == 0
    assert ended.out.count("the script started over") == 1


def test_a_dumb_terminal_gets_plain_lines_as_they_come(runs: LocalRuns) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(runs.write())]
    runs.storage.mkdir()
    process = subprocess.Popen(command, stdout=theirs, env={**os.environ, "TERM": "dumb"})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.wait() == 0
    assert b"Started: attempt 1 starts from scratch with 2 workers" in shown
    assert b"\x1b" not in shown


@pytest.mark.case("script", "Ranks number their steps differently")
def test_ranks_that_count_their_own_steps_are_told_so(runs: LocalRuns) -> None:
    runs.env = {"MODE": "own-steps", "STEPS": "80", "PAUSE": "0.05"}
    ended = runs.run(env={"TRAINRUN_CHECKPOINT_PATIENCE": "1"})
    told = next(event for event in ended.history if event["reason"] == "CheckpointWaiting")
    assert "rank 0" in told["message"]


def test_ranks_that_save_under_steps_of_their_own_are_told_that_no_checkpoint_is_all_of_it(
    runs: LocalRuns,
) -> None:
    runs.env = {"MODE": "shifted-steps", "STEPS": "80", "PAUSE": "0.05"}
    ended = runs.run()
    told = next(event for event in ended.history if event["reason"] == "CheckpointPartial")
    assert "only from rank 0" in told["message"]
    assert "only from rank 1" in told["message"]
    assert "report them with the same step on every rank" in told["message"]


@pytest.mark.case("nodes", "The agent is killed", counted="maxFailures")
def test_processes_of_a_killed_agent_end_with_it_and_the_run_goes_on(runs: LocalRuns) -> None:
    runs.spec = budget(1)
    runs.env = {"STEPS": "60", "PAUSE": "0.05"}
    driver = runs.start()
    driver.wait_for_step(6)
    os.kill(_agent_of(runs, "tiny-1-1"), signal.SIGKILL)
    ended = driver.end()
    assert ended.code == 0, ended.out[-3000:]
    (incident,) = ended.incidents
    assert incident["counted"]


def _agent_of(runs: LocalRuns, worker: str) -> int:
    from pathlib import Path

    for pid in runs.our_processes():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        if b"trainrun.agent" in command and f"/nodes/{worker}\0".encode() in environ:
            return pid
    raise AssertionError(f"no agent of {worker}")
