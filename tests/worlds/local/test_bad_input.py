"""Bad input ends with exit code 2, before anything is started, and with a message that helps."""

from __future__ import annotations

import errno

import pytest

from tests.worlds.local.local_runs import LocalRuns


def refused(runs: LocalRuns, *options: str) -> str:
    ended = runs.run(*options)
    assert ended.code == 2
    assert ended.out == ""
    assert not (runs.storage / "tiny").exists()
    return ended.err.removeprefix("error: ").strip()


def test_a_script_that_is_not_there(runs: LocalRuns) -> None:
    runs.script = "no_such.py"
    message = refused(runs)
    assert message.startswith(
        "spec.workers.template.spec.containers[0].command: there is no script "
    )
    assert message.endswith("/scripts/no_such.py")


def test_a_field_that_is_out_of_its_bounds(runs: LocalRuns) -> None:
    runs.spec = {"failurePolicy": {"maxFailures": -2}}
    assert "spec.failurePolicy.maxFailures: -2 is less than -1; use -1 for no limit" in refused(
        runs
    )


def test_a_launcher_that_starts_processes_by_itself(runs: LocalRuns) -> None:
    runs.launcher = ("accelerate", "launch")
    assert (
        "the command of container worker cannot be run: accelerate launch starts processes "
        "itself, which TrainRun does here: write command: [python, train.py]"
    ) in refused(runs)


def test_several_problems_at_once(runs: LocalRuns) -> None:
    runs.spec = {"failurePolicy": {"maxFailure": 2}, "suspended": True}
    message = refused(runs)
    assert "spec.failurePolicy.maxFailure" in message
    assert "spec.suspended" in message


def test_an_option_that_the_file_would_not_be_allowed_either(runs: LocalRuns) -> None:
    assert "spec.workers.replicas: 0 is less than 1" in refused(runs, "--replicas", "0")


def test_a_storage_of_an_unknown_kind(runs: LocalRuns) -> None:
    message = refused(runs, "--storage", "ftp://bucket/x")
    assert "spec.storage.uri" in message
    assert "must be file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or " in message


def test_a_fault_that_is_none(runs: LocalRuns) -> None:
    message = refused(runs, "--fault", "explode rank=1")
    assert message.startswith(
        "--fault \"explode rank=1\": 'explode' is not a fault; use kill, preempt"
    )


def test_a_fault_for_a_rank_that_is_not_there(runs: LocalRuns) -> None:
    message = refused(runs, "--fault", "kill rank=2 step=1")
    assert "there is no rank 2: ranks are 0 to 1" in message


def test_a_file_that_is_not_there(runs: LocalRuns) -> None:
    from click.testing import CliRunner

    from trainrun_operator.cli.commands import trainrun

    result = CliRunner().invoke(trainrun, ["run", "missing.yaml"])
    assert result.exit_code == 2
    assert "'missing.yaml' does not exist" in result.output


def test_a_storage_folder_that_cannot_be_written(runs: LocalRuns) -> None:
    (runs.folder / "file").touch()
    ended = runs.run("--storage", str(runs.folder / "file" / "below"))
    assert ended.code == 2
    folder = runs.folder / "file" / "below" / ".trainrun" / "tiny"
    assert ended.err.endswith(f"Not a directory: make {folder} writable\n")


def test_a_storage_without_locks_is_told_so(
    runs: LocalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the folder must be writable."""
    from click.testing import CliRunner

    from trainrun_operator.cli.commands import trainrun

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    file = str(runs.write())
    result = CliRunner().invoke(trainrun, ["run", file, "--storage", str(runs.folder / "nfs")])
    assert result.exit_code == 2
    assert "No locks available: the file system of " in result.output
    assert "lacks locks (flock); use a storage on another one" in result.output
