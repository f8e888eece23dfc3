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
from trainrun.contract import layout
from trainrun.errors import StoreError, TrainRunError
from trainrun.sweep.search import Objective
from trainrun.sweep.space import Parameter
from trainrun.sweep.view import SweepView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.cli.preparation import holds_sweep, storage_uri
from trainrun_operator.cli.sweeping.loading import load_sweep, store_of
from trainrun_operator.core.sweep.config import space_of


class UnknownSweep(TrainRunError):
    """There is no log of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSweep:
    """What the log of a sweep says."""

    folder: RunStore
    view: SweepView
    described: TrainSweep | None
    """As its file describes it now; None: the folder alone was given."""

    @property
    def uri(self) -> str:
        """Of its folder."""
        return self.folder.uri

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
    described = None if _is_folder(where) else load_sweep(Path(where), storage=storage)
    folder = _folder_at(where) if described is None else _folder_of(described)
    view = SweepLog(folder).read_on()
    if not view.sessions:
        raise UnknownSweep(
            f"{folder.uri}: there is no log of a sweep; give <storage URI>/<sweep name> or the "
            "sweep's YAML file"
        )
    return ReadSweep(folder=folder, view=view, described=described)


def names_sweep(where: str) -> bool:
    """Whether this is the file or the folder of a sweep; where that cannot be told it is not: what
    is wrong is for whoever reads a run there to say."""
    if not _is_folder(where):
        return Path(where).is_file() and holds_sweep(Path(where))
    try:
        return bool(_folder_at(where).objects(layout.SWEEP_LOG))
    except StoreError:
        return False


def _is_folder(where: str) -> bool:
    return "://" in where or Path(where).is_dir()


def _folder_at(where: str) -> RunStore:
    uri, _, name = storage_uri(where).rstrip("/").rpartition("/")
    # A folder directly below the root: its parent is file:///, which has lost its slash.
    return RunStore(open_store("file:///" if uri == "file://" else uri), name)


def _folder_of(sweep: TrainSweep) -> RunStore:
    return RunStore(store_of(sweep), sweep.sweep_name)
