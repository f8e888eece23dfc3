"""Of a folder with several generations the verbs look at that of the run that is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.stories import a_folder, a_life
from tests.support.checkpoints import Bench
from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.worlds.local.place import StatusFile, place_of


def call(*words: str) -> Result:
    return CliRunner().invoke(trainrun, list(words))


@pytest.fixture
def folder(tmp_path: Path) -> RunStore:
    """Two TrainRuns have saved step 700, each in its own generation; the first has trained more."""
    chapters = a_life()
    root = tmp_path / "runs"
    a_folder(root, *chapters)
    a_folder(root, replace(chapters[-1], number=1, attempt=1, resumed_from=None), generation=2)
    bench = Bench(run=RunStore(open_store(root.as_uri()), "llama"), scratch=tmp_path / "first")
    bench.resolve(1)
    bench.commit(step=700)
    bench.commit(step=800)
    assert bench.resolve(1, uid="uid-2", on_existing="StartFresh").generation == 2
    later = replace(bench.run, generation=2)
    Bench(run=later, scratch=tmp_path / "later", uid="uid-2").commit(step=700)
    return bench.run


def known_to_be_in(folder: RunStore, generation: int) -> None:
    """This machine has a status of the run."""
    place = place_of(folder.store.uri, folder.run_name, environ={})
    file = StatusFile(place.status)
    status = TrainRunStatus(storage_generation=generation, attempt=1)
    file.replace(replace(file.create({}), status=status))


def states(folder: RunStore, generation: int) -> list[tuple[int, str]]:
    found = list_checkpoints(replace(folder, generation=generation))
    return [(info.id.step, info.state) for info in found]


def test_setting_aside_a_checkpoint_of_an_older_run_leaves_that_of_the_newer_run_alone(
    folder: RunStore,
) -> None:
    """The newer run's checkpoint of the same step got the mark, and the older run kept its own."""
    known_to_be_in(folder, 1)
    result = call("checkpoints", "set-aside", folder.uri, "700")
    assert result.exit_code == 0, result.output
    assert states(folder, 1) == [(700, "bad"), (800, "good")]
    assert states(folder, 2) == [(700, "good")]


@pytest.mark.parametrize("known", [None, 0])
def test_nothing_is_set_aside_where_no_status_tells_which_generation_is_meant(
    folder: RunStore, known: int | None
) -> None:
    if known is not None:
        known_to_be_in(folder, known)
    result = call("checkpoints", "set-aside", folder.uri, "700")
    assert result.exit_code == 2
    assert result.output == (
        f"error: {folder.uri} has 2 generations (1 in {folder.uri}, 2 in "
        f"{folder.uri}/generation-000002), and no status says which one is meant: give "
        "--generation N\n"
    )
    assert states(folder, 2) == [(700, "good")]
    named = call("checkpoints", "set-aside", folder.uri, "700", "--generation", "2")
    assert named.exit_code == 0, named.output
    assert states(folder, 2) == [(700, "bad")]
    assert states(folder, 1) == [(700, "good"), (800, "good")]


def test_a_generation_that_is_named_goes_above_that_of_the_status(folder: RunStore) -> None:
    known_to_be_in(folder, 1)
    result = call("checkpoints", "set-aside", folder.uri, "700", "--generation", "2")
    assert result.exit_code == 0, result.output
    assert states(folder, 2) == [(700, "bad")]


def test_list_get_and_can_resume_look_at_the_generation_of_the_run(
    folder: RunStore, tmp_path: Path
) -> None:
    """They showed the checkpoints of the TrainRun that began the newest one."""
    newest = call("checkpoints", folder.uri)
    assert "generation 2 of 2, the newest; --generation N and" in newest.output
    known_to_be_in(folder, 1)
    listed = call("checkpoints", folder.uri)
    assert "generation 1 of 2, this run's; --generation N and" in listed.output
    assert "* the next attempt resumes from this one" in listed.output
    other = call("checkpoints", folder.uri, "--generation", "2")
    assert "generation 2 of 2\n" in other.output
    assert "* the newest good one" in other.output
    assert json.loads(call("checkpoints", folder.uri, "--can-resume", "--json").output)["step"] == (
        800
    )
    fetched = call("checkpoints", "get", folder.uri, str(tmp_path / "model"))
    assert "of step-000000800-attempt-1, each verified" in fetched.output


def test_an_empty_newest_generation_resumes_nothing_and_says_that_older_ones_are_there(
    folder: RunStore, tmp_path: Path
) -> None:
    bench = Bench(run=folder, scratch=tmp_path / "newest", uid="uid-3")
    assert bench.resolve(1, on_existing="StartFresh").generation == 3
    asked = call("checkpoints", folder.uri, "--can-resume")
    assert (asked.exit_code, asked.output) == (
        3,
        f"no: {folder.uri}/generation-000003: nothing was committed, a run starts from scratch; "
        "earlier generations are not resumed\n",
    )


def test_the_story_of_a_run_that_began_afresh_is_its_own(folder: RunStore, tmp_path: Path) -> None:
    """That of the first generation was told, whatever became of the run since."""
    known_to_be_in(folder, 2)
    beside = f"{folder.uri}/generation-000002"
    told = json.loads(call("explain", folder.uri, "--json").output)
    assert told["uri"] == beside
    assert len(told["chapters"]) == 1
    assert [info["step"] for info in told["checkpoints"]] == [700]
    text = "".join(call("explain", folder.uri).output.split())
    assert f"storage{beside}" in text
    page = tmp_path / "story.html"
    assert call("explain", folder.uri, "--html", str(page)).exit_code == 0
    assert beside in page.read_text()


def test_the_story_of_a_folder_without_a_status_is_that_of_the_newest_generation(
    folder: RunStore,
) -> None:
    told = json.loads(call("explain", folder.uri, "--json").output)
    assert told["uri"] == f"{folder.uri}/generation-000002"
    assert len(told["chapters"]) == 1


def test_the_story_of_another_generation_is_told_without_the_status(folder: RunStore) -> None:
    known_to_be_in(folder, 2)
    told = json.loads(call("explain", folder.uri, "--generation", "1", "--json").output)
    assert told["uri"] == folder.uri
    assert len(told["chapters"]) == 4
    assert told["phase"] is None
    assert told["remarks"] == ["the status is left out: it belongs to generation 2"]
    unknown = call("explain", folder.uri, "--generation", "3")
    assert unknown.exit_code == 2
    assert "has 2 generations, but none with the number 3" in unknown.output
