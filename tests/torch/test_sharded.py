"""torch.distributed.checkpoint: a directory for each rank when saved, one when read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from tests.support.checkpoints import materialize
from tests.torch.ranks import start_ranks
from tests.torch.sharded import model, save_sharded
from trainrun.checkpoint import RunStore, commit_if_complete, open_store, scan, write_part
from trainrun.contract.checkpoint_id import CheckpointId


def commit(run: RunStore, directories: list[Path]) -> None:
    """As two agents do: each stores the part of its rank, then one of them commits."""
    for rank, directory in enumerate(directories):
        write_part(
            run,
            attempt=1,
            step=1,
            worker=rank,
            workers=len(directories),
            files=scan(directory, rank=rank),
            metrics={},
        )
    assert commit_if_complete(run, attempt=1, step=1) is not None


def test_fsdp2_saved_on_two_ranks_is_read_on_one_from_the_merged_directory(tmp_path: Path) -> None:
    directories = [tmp_path / "rank-0", tmp_path / "rank-1"]
    results = start_ranks(2, save_sharded, tmp_path / "run", [str(d) for d in directories])
    (tmp_path / "storage").mkdir()
    run = RunStore(open_store((tmp_path / "storage").as_uri()), "sharded")
    commit(run, directories)

    merged = materialize(run, CheckpointId(attempt=1, step=1), cache_dir=tmp_path / "cache")
    weights = model().state_dict()
    with pytest.warns(UserWarning, match="load in a single process"):
        load({"model": weights}, storage_reader=FileSystemReader(merged), no_dist=True)
    saved = torch.load(results[0], weights_only=True)
    assert weights.keys() == saved.keys()
    assert all(torch.equal(weights[name], saved[name]) for name in saved)
    assert not torch.equal(saved["0.weight"], model().state_dict()["0.weight"])
