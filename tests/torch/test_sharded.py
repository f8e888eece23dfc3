"""torch.distributed.checkpoint: a directory for each rank when saved, one when read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from tests.torch.ranks import start_ranks
from tests.torch.sharded import model, save_sharded
from trainrun.staging import copy_directory


def test_fsdp2_saved_on_two_ranks_is_read_on_one_from_the_merged_directory(tmp_path: Path) -> None:
    directories = [tmp_path / "rank-0", tmp_path / "rank-1"]
    results = start_ranks(2, save_sharded, tmp_path / "run", [str(d) for d in directories])
    names = [{path.name for path in directory.iterdir()} for directory in directories]
    assert names[0].isdisjoint(names[1]), "the same name from two ranks would be a conflict"

    merged = tmp_path / "merged"
    copy_directory(directories[0], merged)
    for path in directories[1].iterdir():
        (merged / path.name).write_bytes(path.read_bytes())
    net = model()
    weights = net.state_dict()
    with pytest.warns(UserWarning, match="load in a single process"):
        load({"model": weights}, storage_reader=FileSystemReader(merged), no_dist=True)
    full = torch.load(results[0], weights_only=True)
    assert weights.keys() == full.keys()
    assert all(torch.equal(weights[name], full[name]) for name in full)
    assert not torch.equal(full["0.weight"], model().state_dict()["0.weight"])
