"""Trackers go on with one run, and one line of points, however often a training restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2 as wandb_records

import trainrun.mlflow
from tests.frameworks.tracked import STEPS
from tests.worlds.local.local_runs import Ended, LocalRuns
from trainrun.contract import variables

LONGEST = 800.0
"""Seconds that the run may take on a busy machine."""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An MLflow store; a folder, since all others need a server or MLflow's own database."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    before, uri = mlflow.get_tracking_uri(), (tmp_path / "mlflow").as_uri()
    mlflow.set_tracking_uri(uri)
    yield uri
    mlflow.set_tracking_uri(before)


def trained(folder: Path, store: str) -> tuple[Ended, str]:
    """A run whose only rank is killed twice, and its run id."""
    env = {
        "OUT": str(folder / "out"),
        "MLFLOW_TRACKING_URI": store,
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "WANDB_MODE": "offline",
    }
    (folder / "out").mkdir()
    runs = LocalRuns(
        folder=folder,
        script=str(Path(__file__).parent / "tracked.py"),
        env=env,
        spec={"failurePolicy": {"maxFailures": 2}},
        replicas=1,
    )
    try:
        driver = runs.start("--fault", "kill rank=0 step=6", "--fault", "kill rank=0 step=13")
        driver.process.wait(LONGEST)
        ended = driver.end()
    finally:
        runs.close()
    assert ended.code == 0, ended.out[-3000:] + ended.err
    assert [incident["resumedFrom"]["step"] for incident in ended.incidents] == [4, 12]
    return ended, ended.status["runId"]


def test_three_attempts_are_one_run_with_one_line_of_points(tmp_path: Path, store: str) -> None:
    _, run_id = trained(tmp_path, store)
    out, steps = tmp_path / "out", list(range(1, STEPS + 1))

    (run,) = mlflow.search_runs(output_format="list")
    assert (run.data.tags["trainrun"], run.info.run_name) == (run_id, "tiny")
    assert run.info.status == "FINISHED"
    points = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
    # Nothing can be taken back there: a step that was done again has two points, of one value.
    assert sorted({point.step for point in points}) == steps
    assert {point.step: point.value for point in points} == {step: 1.0 / step for step in steps}
    again = {step for step, count in Counter(p.step for p in points).items() if count > 1}
    assert {5, 6, 13} <= again <= {*range(5, 9), *range(13, 17)}

    events = EventAccumulator(str(out / "tensorboard" / run_id)).Reload()
    assert [event.step for event in events.Scalars("loss")] == steps

    sessions = sorted((out / "wandb").glob("offline-run-*"))
    assert [path.name.rpartition("-")[2] for path in sessions] == [run_id] * 3
    last = list(logged(sessions[-1] / f"run-{run_id}.wandb"))
    assert [values["step"] for values in last] == steps[12:]


def test_the_same_run_is_found_again_in_the_active_experiment(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variables.RUN, "digits")
    monkeypatch.setenv(variables.RUN_ID, "abc234")
    first = trainrun.mlflow.run_id()
    assert trainrun.mlflow.run_id() == first
    monkeypatch.setenv(variables.RUN_ID, "another")
    assert trainrun.mlflow.run_id() != first
    monkeypatch.setenv(variables.RUN_ID, "abc234")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
    mlflow.create_experiment("other")
    assert trainrun.mlflow.run_id() != first


def test_without_trainrun_each_start_is_a_run_of_its_own(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variables.RUN_ID, raising=False)
    assert trainrun.mlflow.run_id() is None
    assert mlflow.search_runs(output_format="list") == []


def test_other_ranks_are_refused_since_two_would_create_two_runs(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variables.RUN_ID, "abc234")
    monkeypatch.setenv(variables.RANK, "3")
    with pytest.raises(ValueError, match="rank 3 must not look up the MLflow run, since only"):
        trainrun.mlflow.run_id()


def logged(file: Path) -> Iterator[dict[str, Any]]:
    """What was logged in one session of W&B, which keeps it as a log of LevelDB: records in parts,
    each with seven bytes before it, in blocks of 32 KiB, after seven bytes of its own."""
    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record, at = record + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):  # a whole one, or the last part
            read = wandb_records.Record.FromString(record)
            record = b""
            if read.HasField("history"):
                items = read.history.item
                yield {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items}
