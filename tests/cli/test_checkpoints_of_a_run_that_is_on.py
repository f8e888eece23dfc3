"""`trainrun checkpoints` while the run commits and deletes: nothing that is well is called bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.checkpoints import Bench, checkpoint_id
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun_operator.cli.commands import trainrun


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["checkpoints", *map(str, words)])


def listed(result: Result) -> list[tuple[int, str, bool]]:
    """Step, state and mark of each row of a listing as JSON."""
    found = json.loads(result.stdout)["checkpoints"]
    return [(row["step"], row["state"], row["newest"]) for row in found]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A run with checkpoints of steps 10 and 20."""
    store = open_store(f"file://{tmp_path}/runs")
    store.probe()
    made = Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")
    made.resolve(1)
    for step in (10, 20):
        made.commit(step=step)
    return made


def before(monkeypatch: pytest.MonkeyPatch, part: str, happens: Callable[[], object]) -> None:
    """Once, when a file with this part in its key is to be read, something else happens first."""
    read, pending = FileStore.get_file, [happens]

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        if pending and part in key:
            pending.pop()()
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)


def goes_on(bench: Bench, step: int) -> Callable[[], object]:
    """The run commits a step, and keeps two."""

    def commit_and_retain() -> None:
        bench.commit(step=step)
        assert retain(bench.run, attempt=1, keep=2)

    return commit_and_retain


def test_a_checkpoint_that_retention_deletes_while_it_is_verified_is_no_damage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bad ... worker-00000/model-rank0.pt: missing`, with exit code 1."""
    before(monkeypatch, "step-000000010", goes_on(bench, 30))
    result = call(bench.run.uri, "--verify")
    assert result.exit_code == 0, result.output
    first, deleted, _, *rows = result.output.splitlines()
    assert (first, deleted) == (bench.run.uri, "  deleted meanwhile: step-000000010-attempt-1")
    assert [row.split()[:4] for row in rows[:-2]] == [["*", "20", "1", "good"]]


def test_a_checkpoint_that_is_deleted_before_its_turn_is_left_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`error: there is no checkpoint step-000000020-attempt-1`, and no list at all."""
    bench.commit(step=25)
    before(monkeypatch, "step-000000010", goes_on(bench, 30))
    result = call(bench.run.uri, "--verify", "--json")
    assert result.exit_code == 0, result.output
    assert listed(result) == [(25, "good", True)]


def test_a_list_of_which_all_are_deleted_meanwhile_does_not_say_that_there_are_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_more() -> None:
        bench.commit(step=30)
        goes_on(bench, 40)()

    before(monkeypatch, "step-000000010", two_more)
    result = call(bench.run.uri, "--verify")
    assert result.exit_code == 0
    assert result.output == (
        f"{bench.run.uri}\n"
        "  deleted meanwhile: step-000000010-attempt-1, step-000000020-attempt-1\n"
        "  the others are newer: list again\n"
    )
    again = call(bench.run.uri, "--verify", "--json")
    assert listed(again) == [(30, "good", False), (40, "good", True)]


def test_a_list_is_not_ended_by_what_is_deleted_while_manifests_are_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, pending = RunStore.manifest, [goes_on(bench, 30)]

    def manifest(run: RunStore, checkpoint: object) -> object:
        if pending:
            pending.pop()()
        return read(run, checkpoint)  # type: ignore[arg-type]

    monkeypatch.setattr(RunStore, "manifest", manifest)
    assert listed(call(bench.run.uri, "--json")) == [(20, "good", True)]


def a_last_one_without_manifest(bench: Bench) -> Path:
    """Every part of step 30 is stored, and nobody has committed it yet; returns one file."""
    for worker in (0, 1):
        files = {worker: {f"model-{worker}.pt": b"abc"}}
        bench.part(step=30, worker=worker, workers=2, files=files)
    root = Path(bench.run.store.uri.removeprefix("file://"))
    return root / "digits/checkpoints" / checkpoint_id(1, 30).name / "worker-00001/model-1.pt"


def test_a_flipped_bit_in_what_the_next_start_commits_is_found_by_verify(bench: Bench) -> None:
    """It was marked as the resume point: `every file was read`, exit code 0."""
    file = a_last_one_without_manifest(bench)
    well = call(bench.run.uri, "--verify", "--json")
    assert well.exit_code == 0
    assert listed(well) == [(10, "good", False), (20, "good", False), (30, "good", True)]
    file.write_bytes(b"abd")
    result = call(bench.run.uri, "--verify")
    assert result.exit_code == 1
    [line] = (line for line in result.output.splitlines() if " bad " in line)
    assert line.split()[:3] == ["30", "1", "bad"]
    assert "worker-00001/model-1.pt: CRC32" in line
    assert "*  20 " in result.output
    assert bench.run.folder(checkpoint_id(1, 30)).has_manifest is False


def test_what_the_next_start_commits_can_be_fetched(bench: Bench, tmp_path: Path) -> None:
    """`error: step-000000050-attempt-1/manifest.json: missing`."""
    file = a_last_one_without_manifest(bench)
    result = call("get", bench.run.uri, tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "2 files (6 B) of step-000000030-attempt-1, each verified" in result.output
    found = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert found == {"model-0.pt": b"abc", "model-1.pt": b"abc"}
    best = call("get", bench.run.uri, "best", tmp_path / "best", "--score", "loss:Max")
    assert "of step-000000030-attempt-1, each verified" in best.output
    file.write_bytes(b"abd")
    damaged = call("get", bench.run.uri, tmp_path / "damaged")
    assert damaged.exit_code == 2
    assert "worker-00001/model-1.pt: CRC32" in damaged.output
    assert not (tmp_path / "damaged").exists()


def test_what_is_committed_while_it_is_verified_is_good(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that both workers brought are stored once from then on."""
    for worker in (0, 1):
        files = {worker: {"common.json": b"{}", f"model-{worker}.pt": b"abc"}}
        bench.part(step=30, worker=worker, workers=2, files=files)
    before(monkeypatch, "step-000000030", lambda: bench.resolve(2))
    result = call(bench.run.uri, "--verify", "--json")
    assert result.exit_code == 0
    assert listed(result)[-1] == (30, "good", True)
    assert bench.run.folder(checkpoint_id(1, 30)).has_manifest


def test_a_checkpoint_that_retention_deletes_while_it_is_fetched_is_not_called_damaged(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before(monkeypatch, "step-000000010", goes_on(bench, 30))
    result = call("get", bench.run.uri, "10", tmp_path / "model")
    assert result.exit_code == 2
    assert result.output == (
        f"error: {bench.run.uri}: step-000000010-attempt-1 was deleted during the download, "
        "because of checkpoint.keep; `trainrun checkpoints` lists what is left\n"
    )
