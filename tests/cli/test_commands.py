"""`trainrun status`, `trainrun checkpoints`, help, and what they import."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.worlds.local.local_runs import LocalRuns
from trainrun._common.tree import time_of
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


@pytest.mark.whole_runs
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


@pytest.mark.parametrize(
    "line", ["status", "logs", "checkpoints", "explain", "checkpoints get _ model"]
)
def test_all_commands_say_alike_that_a_run_was_never_started(line: str, tmp_path: Path) -> None:
    """Four said "is the volume mounted?" with exit code 1, one "was never started" with 2."""
    storage = tmp_path / "runs"
    verb, *rest = line.replace("_", f"{storage.as_uri()}/first").split()
    result = call(verb, *(rest or [f"{storage.as_uri()}/first"]))
    assert result.exit_code == 2
    assert result.output == (
        f"error: run first in {storage.as_uri()} was never started on this machine, and the "
        f"storage's folder {storage} does not exist; is the volume mounted?\n"
    )


def test_a_storage_that_another_machine_wrote_has_checkpoints_and_no_status(
    finished: LocalRuns, tmp_path: Path
) -> None:
    storage = tmp_path / "copy"
    shutil.copytree(finished.storage, storage, ignore=shutil.ignore_patterns(".trainrun"))
    where = f"{storage.as_uri()}/tiny"
    listed = call("checkpoints", where)
    assert listed.exit_code == 0, listed.output
    assert "the next attempt resumes from this one" in listed.output
    shown = call("status", where)
    assert shown.exit_code == 2
    assert shown.output == (
        f"error: run tiny in {storage.as_uri()} was never started on this machine "
        f"({storage}/.trainrun/tiny/status.json does not exist); `trainrun checkpoints` shows what "
        "its storage holds\n"
    )


def test_storage_without_a_run_is_named(tmp_path: Path) -> None:
    result = call("checkpoints", f"{tmp_path.as_uri()}/other")
    assert result.exit_code == 2
    where = f"run other in {tmp_path.as_uri()}"
    said = f"{where} was never started: the storage has nothing of it. Give <storage URI>"
    assert said in result.output


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


def test_the_newest_checkpoint_is_fetched_and_is_what_was_saved(
    finished: LocalRuns, tmp_path: Path
) -> None:
    where, folder = f"{finished.storage.as_uri()}/tiny", tmp_path / "model"
    result = call("checkpoints", "get", where, str(folder))
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"{folder}: 2 files (")
    assert "of step-000000020-attempt-2, each verified" in result.output
    stored = finished.storage / "tiny/checkpoints/step-000000020-attempt-2"
    saved = {path.name: path.read_bytes() for path in stored.glob("worker-*/*.json")}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == saved
    files = json.loads((stored / "manifest.json").read_text())["files"]
    times = {path.name: time_of(path.stat()) for path in folder.iterdir()}
    assert times == {item["name"]: item["modified"] for item in files}  # the newest by time
    assert list(tmp_path.iterdir()) == [folder]
    again = call("checkpoints", "get", where, str(folder))
    assert again.exit_code == 2
    assert f"{folder} already exists; name a new folder, or an empty one" in again.output


def test_on_a_terminal_it_is_told_how_much_is_read(
    finished: LocalRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = f"{finished.storage.as_uri()}/tiny"
    assert "reading" not in call("checkpoints", where, "--verify").output
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    monkeypatch.setattr("trainrun_operator.cli.checkpoint_files.LARGE", 1)
    said = call("checkpoints", where, "--verify").stderr
    assert re.search(r"^reading step-\d+-attempt-\d, 1 of \d, \d+ B$", said, re.MULTILINE)
    said = call("checkpoints", "get", where, str(tmp_path / "model")).stderr
    assert re.search(r"^reading rank-0\.json, \d+ B$", said, re.MULTILINE)


@pytest.mark.parametrize("step", ["15", "step-000000015-attempt-2"])
def test_the_checkpoint_of_a_step_is_fetched_by_step_or_name(
    finished: LocalRuns, tmp_path: Path, step: str
) -> None:
    result = call("checkpoints", "get", finished.storage.as_uri(), step, str(tmp_path / "model"))
    assert result.exit_code == 0, result.output
    assert "of step-000000015-attempt-2, each verified" in result.output


def test_what_cannot_be_fetched_is_named(finished: LocalRuns, tmp_path: Path) -> None:
    where = finished.storage.as_uri()
    unknown = call("checkpoints", "get", where, "16", str(tmp_path / "model"))
    assert unknown.exit_code == 2
    assert "tiny: there is no complete checkpoint of step 16; `trainrun checkpo" in unknown.output
    (tmp_path / "file").touch()
    blocked = call("checkpoints", "get", where, str(tmp_path / "file" / "model"))
    assert blocked.exit_code == 2
    assert "model cannot be written: " in blocked.output
    many = call("checkpoints", "get", where, "1", "2", str(tmp_path / "model"))
    assert "at most one STEP" in many.output


def test_damage_is_found_when_it_is_fetched(finished: LocalRuns, tmp_path: Path) -> None:
    damaged = next(finished.storage.glob("tiny/checkpoints/*5-attempt-2/worker-00001/rank-1.json"))
    before = damaged.read_bytes()
    try:
        damaged.write_bytes(before.replace(b"15", b"16"))
        result = call("checkpoints", "get", finished.storage.as_uri(), "15", str(tmp_path / "m"))
    finally:
        damaged.write_bytes(before)
    assert result.exit_code == 2
    assert "worker-00001/rank-1.json: CRC32" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_poisons_the_training_is_set_aside(
    finished: LocalRuns, tmp_path: Path
) -> None:
    shutil.copytree(finished.storage / "tiny", tmp_path / "tiny")
    where = f"{tmp_path.as_uri()}/tiny"
    result = call("checkpoints", "set-aside", where, "20", "--reason", "the loss explodes")
    assert result.exit_code == 0, result.output
    assert result.output == (
        "step-000000020-attempt-2 is set aside: no attempt will resume from it\n"
        "the next attempt resumes from step-000000015-attempt-2, unless a newer one is saved\n"
        f"to undo this, delete {where}/bad/step-000000020-attempt-2.json\n"
    )
    listed = call("checkpoints", where)
    assert "bad" in listed.output
    assert "the loss explodes" in listed.output
    for info in json.loads(call("checkpoints", where, "--json").output)["checkpoints"]:
        if info["state"] == "good":
            last = call("checkpoints", "set-aside", where, str(info["step"]))
    assert "no good checkpoint is left: the next attempt will fail" in last.output
    kept = call("checkpoints", "get", where, "20", str(tmp_path / "model"))
    assert kept.exit_code == 0
    assert "note: this checkpoint is bad: the loss explodes" in kept.output


def test_the_best_one_is_that_of_the_metric_that_is_asked_for(
    finished: LocalRuns, tmp_path: Path
) -> None:
    where, folder = f"{finished.storage.as_uri()}/tiny", str(tmp_path / "model")
    least = call("checkpoints", "get", where, "best", folder, "--score", "loss:Min")
    assert least.exit_code == 0, least.output
    assert "of step-000000020-attempt-2, each verified" in least.output
    unsaid = call("checkpoints", "get", where, "best", folder)
    assert unsaid.exit_code == 2
    assert unsaid.output == (
        f"error: {where}: it is not known which checkpoint is best: give the run's YAML file with "
        "checkpoint.scoreMetric, or --score NAME:Max or NAME:Min\n"
    )
    unknown = call("checkpoints", "get", where, "best", folder, "--score", "bleu:Max")
    assert unknown.exit_code == 2
    assert f"{where}: no good checkpoint has a number for 'bleu'" in unknown.output
    for malformed in ("loss", "loss:least", ":Min"):
        refused = call("checkpoints", where, "--score", malformed)
        assert refused.exit_code == 2
        told = f"--score {malformed}: write NAME:Max or NAME:Min, such as loss:Min"
        assert told in refused.output
    listed = call("checkpoints", where, "--score", "bleu:Max")
    assert listed.output.endswith("  no good checkpoint has a number for 'bleu'\n")
    assert listed.exit_code == 0


def test_whether_a_run_would_resume_is_said_in_a_line_and_by_the_exit_code(
    finished: LocalRuns, tmp_path: Path
) -> None:
    shutil.copytree(finished.storage / "tiny", tmp_path / "tiny")
    where = f"{tmp_path.as_uri()}/tiny"
    over = call("checkpoints", where, "--can-resume")
    assert (over.exit_code, over.output) == (
        3,
        f"no: {where} has already finished: nothing is left to do. To train again, set "
        "storage.onExisting: StartFresh, or use another storage.runName\n",
    )
    (tmp_path / "tiny/finished.json").unlink()
    would = call("checkpoints", where, "--can-resume")
    assert (would.exit_code, would.output) == (
        0,
        f"yes: {where}: a run resumes from step 20 of attempt 2\n",
    )
    shown = json.loads(call("checkpoints", where, "--can-resume", "--json").output)
    assert (shown["canResume"], shown["step"], shown["attempt"]) == (True, 20, 2)
    next(tmp_path.glob("tiny/checkpoints/*20-attempt-2/worker-00001/rank-1.json")).unlink()
    older = call("checkpoints", where, "--can-resume")
    assert older.exit_code == 0
    assert older.output == (
        f"yes: {where}: a run resumes from step 15 of attempt 2; damaged and newer: "
        "step-000000020-attempt-2: worker-00001/rank-1.json: missing\n"
    )


def test_a_storage_that_no_run_has_used_resumes_nothing(tmp_path: Path) -> None:
    where = f"{tmp_path.as_uri()}/new"
    result = call("checkpoints", where, "--can-resume")
    assert result.exit_code == 3
    assert result.output == f"no: {where}: nothing was committed, a run starts from scratch\n"
    assert list(tmp_path.iterdir()) == []


def test_damage_of_every_checkpoint_is_why_a_run_would_not_resume(
    finished: LocalRuns, tmp_path: Path
) -> None:
    shutil.copytree(finished.storage / "tiny", tmp_path / "tiny")
    (tmp_path / "tiny/finished.json").unlink()
    for file in tmp_path.glob("tiny/checkpoints/*/worker-00001/rank-1.json"):
        file.unlink()
    result = call("checkpoints", f"{tmp_path.as_uri()}/tiny", "--can-resume")
    assert result.exit_code == 3
    assert result.output.startswith("no: ")
    assert "tiny has no good checkpoint left, and starting from scratch would lose" in result.output


def test_a_store_that_cannot_be_read_leaves_open_whether_a_run_would_resume(
    tmp_path: Path,
) -> None:
    result = call("checkpoints", f"{(tmp_path / 'gone').as_uri()}/tiny", "--can-resume")
    assert result.exit_code == 1
    assert "does not exist" in result.output
    both = call("checkpoints", f"{tmp_path.as_uri()}/tiny", "--can-resume", "--verify")
    assert both.exit_code == 2
    assert "--can-resume reads no files; use --verify without it" in both.output


def test_of_several_runs_one_has_to_be_named(finished: LocalRuns, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    shutil.copytree(finished.storage, storage)
    shutil.copytree(storage / ".trainrun/tiny", storage / ".trainrun/other")
    result = call("checkpoints", "get", storage.as_uri(), str(tmp_path / "model"))
    assert result.exit_code == 2
    assert "holds several runs; name one of them: " in result.output


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
        f"error: {binary}: is not UTF-8 text (invalid start byte)\n"
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


@pytest.mark.parametrize(
    ("where", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
@pytest.mark.parametrize("words", [("--help",), ("logs",)], ids=str)
def test_an_output_that_cannot_be_written_is_told_in_a_line(
    finished: LocalRuns, words: tuple[str, ...], where: str, why: str
) -> None:
    if "logs" in words:
        words = (*words, str(finished.folder / "trainrun.yaml"))
    command = ["bash", "-c", f'"$@" {where}', "bash", sys.executable, "-m", "trainrun_operator.cli"]
    done = subprocess.run([*command, *words], stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == f"error: cannot write the output: {why}\n"
    assert done.returncode == 1
