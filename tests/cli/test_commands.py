"""`trainrun status`, `trainrun checkpoints`, help, and what they import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.local.local_runs import LocalRuns
from trainrun_operator.cli.commands import trainrun

HEAVY = ("kopf", "kubernetes", "torch", "boto3", "botocore")


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, list(words))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> LocalRuns:
    """A run that has succeeded after one incident."""
    runs = LocalRuns(folder=tmp_path_factory.mktemp("finished"))
    runs.spec = {"failurePolicy": {"maxFailures": 1}}
    assert runs.run("--fault", "kill rank=1 step=8").code == 0
    return runs


@pytest.mark.parametrize("form", ["file", "run", "storage", "folder"])
def test_the_status_is_found_by_file_run_and_storage(finished: LocalRuns, form: str) -> None:
    where = {
        "file": str(finished.folder / "trainrun.yaml"),
        "run": f"{finished.storage.as_uri()}/tiny",
        "storage": finished.storage.as_uri(),
        "folder": str(finished.storage),
    }[form]
    result = call("status", where)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Run tiny succeeded after ")
    assert "rank 1 was killed by SIGKILL" in result.output


def test_the_status_as_json_names_run_and_leader(finished: LocalRuns) -> None:
    shown = json.loads(call("status", finished.storage.as_uri(), "--json").output)
    assert shown["run"] == "tiny"
    assert shown["ledBy"] is None
    assert shown["status"]["phase"] == "Succeeded"


def test_the_status_of_a_run_that_is_on_names_phase_and_leader(tmp_path: Path) -> None:
    runs = LocalRuns(folder=tmp_path, env={"STEPS": "2000", "PAUSE": "0.05"})
    driver = runs.start()
    driver.wait_for_step(1)
    result = call("status", str(runs.folder / "trainrun.yaml"))
    driver.interrupt()
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Run tiny: ")
    assert f", led by process {driver.process.pid}\n" in result.output
    assert driver.end().code == 130


def test_a_run_never_started_here_is_named(tmp_path: Path) -> None:
    result = call("status", f"{tmp_path.as_uri()}/other")
    assert result.exit_code == 2
    assert "run other in file://" in result.output
    assert "was never started on this machine" in result.output


def test_storage_without_a_run_is_named(tmp_path: Path) -> None:
    result = call("checkpoints", f"{tmp_path.as_uri()}/other")
    assert result.exit_code == 2
    assert f"{tmp_path.as_uri()}/other: there is nothing; give <storage URI>/" in result.output


def test_checkpoints_are_listed_and_the_newest_is_marked(finished: LocalRuns) -> None:
    result = call("checkpoints", finished.storage.as_uri())
    assert result.exit_code == 0, result.output
    newest = next(line for line in result.output.splitlines() if line.startswith("*"))
    assert newest.split()[1:4] == ["20", "2", "good"]


def test_verifying_reads_every_file(finished: LocalRuns) -> None:
    result = call("checkpoints", f"{finished.storage.as_uri()}/tiny", "--verify", "--json")
    listing = json.loads(result.output)
    assert result.exit_code == 0
    assert listing["verified"]
    assert {entry["state"] for entry in listing["checkpoints"]} == {"good"}
    assert [entry["newest"] for entry in listing["checkpoints"]][-1]


def test_damage_is_found_and_named(finished: LocalRuns) -> None:
    damaged = next(finished.storage.glob("tiny/checkpoints/*5-attempt-2/worker-00001/rank-1.json"))
    before = damaged.read_bytes()
    try:
        damaged.write_bytes(before.replace(b"15", b"16"))
        result = call("checkpoints", finished.storage.as_uri(), "--verify")
    finally:
        damaged.write_bytes(before)
    assert result.exit_code == 1
    line = next(line for line in result.output.splitlines() if " bad " in line)
    assert "worker-00001/rank-1.json" in line


def test_help_imports_nothing_heavy() -> None:
    found = imported_by("['--help']")
    assert not found & {*HEAVY, "aiohttp", "pydantic", "rich", "yaml"}


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "no.yaml"
    assert call("status", str(missing)).output == (
        f"error: {missing}: cannot be read: No such file or directory\n"
    )
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    assert call("run", str(binary)).output == (
        f"error: {binary}: is no text in UTF-8 (invalid start byte)\n"
    )


def test_running_locally_imports_neither_kopf_nor_kubernetes_nor_torch(
    finished: LocalRuns,
) -> None:
    file = str(finished.folder / "trainrun.yaml")
    found = imported_by(f"['run', {file!r}]")
    assert "aiohttp" in found
    assert not found & set(HEAVY)


def imported_by(arguments: str) -> set[str]:
    program = (
        "import sys\n"
        "from trainrun_operator.cli.commands import trainrun\n"
        "try:\n"
        f"    trainrun({arguments})\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('MODULES', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(output.rpartition("MODULES ")[2].split())
