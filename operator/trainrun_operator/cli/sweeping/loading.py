"""From a file to a TrainSweep and the store of its folder.

Layer: cli.
"""

from __future__ import annotations

from pathlib import Path

from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.cli.preparation import read_file, storage_uri


def load_sweep(
    file: Path, *, storage: str | None = None, replicas: int | None = None
) -> TrainSweep:
    """The TrainSweep in this file with the command line's changes. Raises InvalidSpec."""
    changes: dict[str, object] = {}
    if replicas is not None:
        changes["spec.run.workers.replicas"] = replicas
    if storage is not None:
        changes["spec.storage.uri"] = storage_uri(storage)
    return load(read_file(file), TRAINSWEEP, source=str(file), overrides=changes)


def store_of(sweep: TrainSweep) -> ObjectStore:
    """Where its folder is, without any I/O. Raises StoreMisconfigured."""
    it = sweep.spec.storage
    return open_store(it.uri, endpoint_url=it.endpoint_url, region=it.region)
