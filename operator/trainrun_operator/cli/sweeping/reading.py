"""A sweep as its storage tells it: from a YAML file, or from the address of its folder alone.

Layer: cli. Asks the store alone, and changes nothing there; works from any machine, whether the
sweep is on, over, or its cluster gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trainrun.checkpoint import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import TrainRunError
from trainrun.sweep.search import Objective
from trainrun.sweep.space import Parameter
from trainrun.sweep.view import SweepView
from trainrun_operator.cli.preparation import storage_uri
from trainrun_operator.cli.sweeping.loading import load_sweep, store_of
from trainrun_operator.core.sweep.config import space_of


class UnknownSweep(TrainRunError):
    """There is no log of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSweep:
    """What the log of a sweep says."""

    uri: str
    """Of its folder."""
    view: SweepView

    @property
    def name(self) -> str:
        """The folder's own."""
        return self.uri.rpartition("/")[2]

    @property
    def space(self) -> tuple[Parameter, ...]:
        """What was searched; it can never change either."""
        return space_of(self.view.sessions[0].spec)

    @property
    def objective(self) -> Objective:
        """What was searched for: it can never change, so the first session says it."""
        goal = json.loads(self.view.sessions[0].spec)["objective"]
        return Objective(metric=goal["metric"], goal=goal["goal"], value=goal["value"])


def read_sweep(where: str, *, storage: str | None) -> ReadSweep:
    """The sweep of a file or in a folder. Raises InvalidSpec, StoreError, SweepLogDamaged, and
    UnknownSweep where nothing was ever begun."""
    folder = folder_of(where, storage=storage)
    view = SweepLog(folder).read_on()
    if not view.sessions:
        raise UnknownSweep(
            f"{folder.uri}: there is no log of a sweep; give <storage URI>/<sweep name> or the "
            "sweep's YAML file"
        )
    return ReadSweep(uri=folder.uri, view=view)


def folder_of(where: str, *, storage: str | None) -> RunStore:
    """Its folder, without any I/O but for the file. Raises InvalidSpec, StoreMisconfigured."""
    if "://" in where or Path(where).is_dir():
        uri, _, name = storage_uri(where).rstrip("/").rpartition("/")
        # A folder directly below the root: its parent is file:///, which has lost its slash.
        return RunStore(open_store("file:///" if uri == "file://" else uri), name)
    sweep = load_sweep(Path(where), storage=storage)
    return RunStore(store_of(sweep), sweep.sweep_name)
