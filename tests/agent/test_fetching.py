"""Handing out the resume point: a good checkpoint is not given up for one bad reading of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.agent.config import AgentConfig, StorageConfig
from trainrun.agent.fetching import Fetching
from trainrun.agent.storage import Storage
from trainrun.checkpoint import LocalFile, RunStore, open_store, write_part
from trainrun.checkpoint.file import FileStore
from trainrun.errors import CheckpointDamaged
from trainrun.protocol import CheckpointId

if TYPE_CHECKING:
    import pytest


async def test_damage_that_a_second_reading_does_not_find_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "storage").mkdir()
    model = tmp_path / "model.pt"
    model.write_bytes(b"abc")
    run = RunStore(open_store(f"file://{tmp_path}/storage"), "run")
    files = [LocalFile(name="model.pt", path=model, rank=0)]
    write_part(run, attempt=1, step=5, worker=0, workers=1, files=files, metrics={}, whole=True)
    read, readings = FileStore.get_file, []

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        readings.append(key)
        if len(readings) == 1:
            raise CheckpointDamaged(f"{key}: its content changed")  # on its way to this node
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)
    config = AgentConfig(
        run="run",
        run_uid="uid-1",
        slot=0,
        worker="run-0-1",
        operator_url="http://127.0.0.1:1",
        directory=str(tmp_path / "node"),
        cache=str(tmp_path / "cache"),
        storage=StorageConfig(uri=f"file://{tmp_path}/storage", run_name="run"),
        command=(),
    )
    resume = CheckpointId(attempt=1, step=5)
    storage = Storage(config)
    fetching = Fetching(storage=storage, resume=resume, initial=None, news=lambda: None)
    reply = await fetching.checkpoint(None)
    storage.close()
    assert (Path(str(reply["path"])) / "model.pt").read_bytes() == b"abc"
    assert fetching.damaged is None
    assert run.bad() == set()
