"""`trainrun run` with `onExisting: StartFresh`: from scratch once the run has succeeded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.worlds.local.local_runs import Ended, LocalRuns
from trainrun_operator.cli.commands import trainrun

FRESH = {"storage": {"onExisting": "StartFresh"}, "failurePolicy": {"maxFailures": 1}}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalRuns, Ended, Path]:
    """A run that has succeeded, what it said, and a copy of all that it left."""
    runs = LocalRuns(folder=tmp_path_factory.mktemp("first") / "run", spec=FRESH)
    runs.folder.mkdir()
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    copy = runs.folder.with_name("copy")
    shutil.copytree(runs.folder, copy, symlinks=True)
    return runs, ended, copy


@pytest.fixture
def runs(first: tuple[LocalRuns, Ended, Path]) -> Iterator[LocalRuns]:
    """A run that has succeeded, as its end has left it: the tests begin with the next one."""
    once, _, copy = first
    shutil.rmtree(once.folder)
    shutil.copytree(copy, once.folder, symlinks=True)
    again = LocalRuns(folder=once.folder, spec=FRESH)
    yield again
    again.close()


def saved(folder: Path) -> dict[str, bytes]:
    """All that the first generation holds, with its checkpoints."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not str(path.relative_to(folder)).startswith("generation")
    }


def checkpoints(runs: LocalRuns, *options: str) -> list[dict[str, object]]:
    shown = CliRunner().invoke(
        trainrun, ["checkpoints", f"{runs.storage}/tiny", "--json", *options]
    )
    assert shown.exit_code == 0, shown.output
    return [json.loads(line) for line in shown.output.splitlines()]


@pytest.mark.case("storage", "A run with onExisting: StartFresh finds a used folder")
def test_a_finished_run_that_starts_fresh_trains_anew_beside_what_it_has_saved(
    runs: LocalRuns, first: tuple[LocalRuns, Ended, Path]
) -> None:
    before_it = first[1].status["runId"]
    assert checkpoints(runs)[0]["generations"] == 1
    before = saved(runs.storage / "tiny")
    assert "finished.json" in before

    beside = runs.storage / "tiny" / "generation-000002"
    runs.env = runs.commit_before(13, of=10, generation=2)
    second = runs.run("--fault", "kill rank=1 step=13")
    assert second.code == 0, second.out[-3000:]
    assert "the run succeeded before" in second.err
    assert runs.begins() == [0, 0, 10]  # the second one is killed, and resumes its own
    assert saved(runs.storage / "tiny") == before
    assert second.status["runId"] not in ("", before_it)
    assert second.status["checkpoint"]["uri"].startswith(f"{beside.as_uri()}/checkpoints/")
    (told,) = [event for event in second.history if event["reason"] == "StartedFresh"]
    assert told["message"].startswith(f"generation 2 begins from scratch in {beside.as_uri()};")
    assert "ResumedExisting" not in {event["reason"] for event in second.history}

    (newest,) = checkpoints(runs)
    assert (newest["generation"], newest["generations"]) == (2, 2)
    assert newest["uri"] == beside.as_uri()
    assert [shown["generation"] for shown in checkpoints(runs, "--all-generations")] == [1, 2]
    (first_one,) = checkpoints(runs, "--generation", "1")
    assert first_one["runId"] == before_it


def test_a_run_that_was_stopped_goes_on_in_its_generation(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "1000", "PAUSE": "0.05"}
    driver = runs.start()
    driver.wait_for_step(12)
    driver.interrupt()
    assert driver.end().code == 130
    runs.env = {}
    assert runs.run().code == 0
    assert runs.begins()[2] >= 12
    assert checkpoints(runs)[0]["generations"] == 2


def test_a_run_whose_driver_was_killed_goes_on_in_its_generation(runs: LocalRuns) -> None:
    runs.env = {"STAY_AT": "12"}
    driver = runs.start()
    driver.wait_for_event("StartedFresh")
    driver.wait_for_step(12)
    driver.kill()
    runs.env = {}
    assert runs.run().code == 0
    assert runs.begins()[:2] == [0, 0]
    assert checkpoints(runs)[0]["generations"] == 2


def test_a_failed_run_goes_on_in_its_generation(runs: LocalRuns) -> None:
    runs.spec = {**FRESH, "failurePolicy": {"maxFailures": 0}}
    runs.env = {**runs.commit_before(8, of=5, generation=2), "FAIL_AT": "8"}
    assert runs.run().code == 1
    runs.env = {}
    assert runs.run().code == 0
    assert runs.begins() == [0, 0, 5]
    assert checkpoints(runs)[0]["generations"] == 2


def test_whoever_resumes_from_another_machine_resumes_the_newest_generation(
    runs: LocalRuns,
) -> None:
    shutil.rmtree(runs.state)  # as from another machine: another TrainRun of the same file
    runs.env = {**runs.commit_before(8, of=5, generation=2), "FAIL_AT": "8"}
    runs.spec = {**FRESH, "failurePolicy": {"maxFailures": 0}}
    assert runs.run().code == 1
    shutil.rmtree(runs.state)
    runs.env, runs.spec = {}, {}
    assert runs.run().code == 0
    assert runs.begins() == [0, 0, 5]


def test_one_checkpoint_of_each_generation_can_be_fetched(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "10"}
    assert runs.run().code == 0
    run = f"{runs.storage}/tiny"
    for number, step in ((1, 20), (2, 10)):
        folder = runs.folder / f"model-{number}"
        command = ["checkpoints", "get", run, str(folder), "--generation", str(number)]
        got = CliRunner().invoke(trainrun, command)
        assert got.exit_code == 0, got.output
        assert json.loads((folder / "rank-0.json").read_text()) == {"step": step}
    got = CliRunner().invoke(
        trainrun, ["checkpoints", "get", run, str(runs.folder / "no"), "--generation", "3"]
    )
    assert (got.exit_code, "but none with the number 3" in got.output) == (2, True)
    shown = CliRunner().invoke(trainrun, ["checkpoints", run, "--all-generations"])
    assert "  generation 1 of 2\n" in shown.output
    assert "  * the newest good one\n" in shown.output
    assert "  generation 2 of 2, the newest; --generation N and --all-gen" in shown.output
    assert "  * the next attempt resumes from this one\n" in shown.output
