"""Another way of sharding reads from the store what its ranks need, and no more."""

from __future__ import annotations

import os
import traceback
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.support.checkpoints import checkpoint_id
from tests.support.foreign_answers import Exchange, foreign_answers
from tests.torch.ranks import start_ranks
from tests.torch.test_sharded import commit
from tests.torch.training import join
from trainrun import Checkpoint
from trainrun.checkpoint.reader import checkpoint_on_node, only, piece, read_manifest
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.torch import shard_reader
from trainrun.torch.shard_reader import ShardReader, joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.s3_server import S3Server

RANKS = 4
ROWS = 1 << 10
"""Of 1 kB: each of the two tensors has 1 MB."""
NAMES = ("weights", "moments")
OVERHEAD = 20_000
"""Bytes of the metadata, and of the archives around the tensors."""


class InStore(Checkpoint):
    """A checkpoint that this process reads as an agent does."""

    def __init__(self, run: RunStore, cache: Path) -> None:
        super().__init__(run.uri)
        manifest = read_manifest(run, checkpoint_id(1, 5))
        self.files = checkpoint_on_node(run, manifest, cache_dir=cache)

    def _fetch(self, rank: int | None, include: Sequence[str] = ()) -> str:
        return str(only(self.files, include).directory())

    @contextmanager
    def as_partial_file(self, name: str, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
        yield str(piece(self.files, name, ranges))


def zeros() -> torch.Tensor:
    return torch.zeros(ROWS, 256, dtype=torch.int32)


def content(name: str) -> torch.Tensor:
    return torch.arange(ROWS * 256, dtype=torch.int32).reshape(ROWS, 256) + NAMES.index(name)


@contextmanager
def joined_rank(rank: int, ranks: int, store: str, result: str) -> Iterator[DeviceMesh]:
    try:
        join(rank, ranks, store)
        yield init_device_mesh("cpu", (ranks,))
        dist.destroy_process_group()
    except BaseException:
        Path(result).write_text(traceback.format_exc())
        raise


def save(rank: int, store: str, folder: Path, result: str) -> None:
    with joined_rank(rank, RANKS, store, result) as mesh:
        state = {name: distribute_tensor(content(name), mesh, [Shard(0)]) for name in NAMES}
        dcp.save(state, checkpoint_id=folder / f"rank-{rank}" / "shards")


def load(rank: int, store: str, environment: dict[str, str], folder: Path, result: str) -> None:
    os.environ.update(environment)
    with joined_rank(rank, 2, store, result) as mesh:
        state = {name: distribute_tensor(zeros(), mesh, [Shard(0)]) for name in NAMES}
        with run_at() as run:
            reader = ShardReader(InStore(run, folder / f"node-{rank}"), "shards")
            dcp.load(state, storage_reader=reader)
        for name, found in state.items():
            assert isinstance(found, DTensor)
            assert torch.equal(found.to_local(), content(name).chunk(2)[rank])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The directory of each rank."""
    folder = tmp_path_factory.mktemp("shards")
    for rank in range(RANKS):
        (folder / f"rank-{rank}").mkdir()
    start_ranks(RANKS, save, folder / "run", folder)
    return [folder / f"rank-{rank}" for rank in range(RANKS)]


@contextmanager
def run_at(endpoint: str | None = None) -> Iterator[RunStore]:
    with closing(open_store("s3://bucket", endpoint_url=endpoint)) as store:
        yield RunStore(store, "sharded")


@pytest.fixture
def server(own_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    return own_s3


@pytest.mark.filterwarnings("ignore:.*single process")
def test_two_ranks_and_a_rank_of_one_tensor_read_only_their_bytes(
    saved: list[Path], server: S3Server, tmp_path: Path
) -> None:
    with run_at() as run:
        commit(run, 5, saved)
    brought: list[int] = []

    def count(exchange: Exchange) -> None:
        if exchange.method == "GET" and "Range" in exchange.headers:
            brought.append(len(exchange.body))

    with foreign_answers(server.port) as between:
        between.after = count
        environment = {**server.environment(), "AWS_ENDPOINT_URL": between.endpoint}
        start_ranks(2, load, tmp_path / "run", environment, tmp_path)
        assert sum(brought) < 2 * content("weights").nbytes + 4 * OVERHEAD

        brought.clear()
        state = {"moments": zeros()}
        with run_at(between.endpoint) as run:
            reader = ShardReader(InStore(run, tmp_path / "cache"), "shards")
            dcp.load(state, storage_reader=reader, no_dist=True)
    assert torch.equal(state["moments"], content("moments"))
    assert content("moments").nbytes < sum(brought) < content("moments").nbytes + OVERHEAD


@pytest.mark.filterwarnings("ignore:.*single process")
def test_a_file_that_is_on_this_node_is_not_read_again(
    saved: list[Path], server: S3Server, tmp_path: Path
) -> None:
    with run_at() as run:
        commit(run, 5, saved)
        checkpoint = InStore(run, tmp_path / "cache")
        with checkpoint.as_directory():
            pass
        before = len(server.requests())
        state = {"weights": zeros()}
        dcp.load(state, storage_reader=ShardReader(checkpoint, "shards"), no_dist=True)
    assert torch.equal(state["weights"], content("weights"))
    assert len(server.requests()) == before


def test_pieces_that_touch_or_are_near_become_one_range() -> None:
    near = shard_reader.NEAR
    assert joined([(500, 10), (0, 100), (50, 60)]) == [(0, 510)]
    assert joined([(near + 101, 5), (0, 100)]) == [(0, 100), (near + 101, 5)]
    assert joined([(0, 100), (10, 20)]) == [(0, 100)]
