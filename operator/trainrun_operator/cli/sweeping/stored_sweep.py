"""Finds a sweep by its YAML file, its folder or its name in a cluster, and reads its log.

Layer: cli. Read-only. The store alone is enough, from any machine, whether the sweep runs, is over,
or its cluster is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.contract import layout
from trainrun.errors import StoreError, TrainRunError
from trainrun.sweep.search import Objective, Parameter
from trainrun.sweep.view import SweepView
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.cli.finding import ClusterName, cluster_name, stored_name
from trainrun_operator.cli.preparation import holds_sweep, read_file, storage_uri
from trainrun_operator.core.sweep.config import objective_of, space_of

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


def load_sweep(
    file: Path, *, storage: str | None = None, replicas: int | None = None
) -> TrainSweep:
    """The TrainSweep in this file, with the command line's changes. Raises InvalidSpec."""
    changes: dict[str, object] = {}
    if replicas is not None:
        changes["spec.run.workers.replicas"] = replicas
    if storage is not None:
        changes["spec.storage.uri"] = storage_uri(storage)
    return load(read_file(file), TRAINSWEEP, source=str(file), overrides=changes)


def store_of(sweep: TrainSweep) -> ObjectStore:
    """The store that holds its folder, opened without I/O. Raises StoreMisconfigured."""
    storage = sweep.spec.storage
    return open_store(storage.uri, endpoint_url=storage.endpoint_url, region=storage.region)


class UnknownSweep(TrainRunError):
    """There is no log of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSweep:
    """A sweep's folder, with its description if there is one."""

    folder: RunStore
    described: TrainSweep | None = None
    """Its current description in the file or the cluster; None: only the folder was given."""
    version: SweepVersion | None = None
    """Its object in the cluster; None: it was not named by its name in a cluster."""

    def read(self, *, before_damage: bool = False) -> ReadSweep:
        """Read the log; with `before_damage` up to the first unreadable record. Raises StoreError,
        SweepLogDamaged if a record (with `before_damage`: the first one) cannot be read, and
        UnknownSweep if there is no log."""
        log = SweepLog(self.folder)
        damage = log.read_before_damage()
        if damage is not None and not (before_damage and log.view.sessions):
            raise damage
        if not log.view.sessions:
            raise UnknownSweep(
                f"{self.folder.uri}: there is no log of a sweep; give <storage URI>/<sweep name>, "
                "the sweep's YAML file, or the name of a TrainSweep"
            )
        return ReadSweep(
            folder=self.folder,
            view=log.view,
            described=self.described,
            version=self.version,
            damage="" if damage is None else str(damage),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSweep(FoundSweep):
    """A sweep whose log has been read."""

    view: SweepView
    damage: str = ""
    """What is wrong with the first unreadable record; empty: all were read."""

    @property
    def uri(self) -> str:
        """The URI of its folder."""
        return self.folder.uri

    @property
    def space(self) -> tuple[Parameter, ...]:
        """The search space; it can never change, so the first session's is read."""
        return space_of(self.view.sessions[0].spec)

    @property
    def objective(self) -> Objective:
        """The objective; it can never change, so the first session's is read."""
        return objective_of(self.view.sessions[0].spec)


def read_sweep(
    where: str, *, storage: str | None, namespace: str | None = None, before_damage: bool = False
) -> ReadSweep:
    """Find a sweep as `find_sweep` does, and read its log. Warns on stderr about a damaged record.
    Raises as `find_sweep` and `read_log`."""
    found = find_sweep(where, storage=storage, namespace=namespace)
    sweep = read_log(found, before_damage=before_damage)
    if sweep.damage:
        click.echo(f"warning: read only the records before this one: {sweep.damage}", err=True)
    return sweep


def read_log(found: FoundSweep, *, before_damage: bool = False) -> ReadSweep:
    """As `FoundSweep.read`; for a name in the cluster, errors name the command that shows its
    status."""
    if found.version is None:
        return found.read(before_damage=before_damage)
    where = found.version.where
    try:
        return found.read(before_damage=before_damage)
    except UnknownSweep as error:
        raise UnknownSweep(
            f"{found.folder.uri}: there is no log yet; `trainrun sweep status {where}` shows what "
            "the sweep is waiting for"
        ) from error
    except StoreError as error:
        # A user with access to the cluster need not have access to its storage.
        raise type(error)(
            f"{error} (the storage is read with this machine's own credentials; `trainrun sweep "
            f"status {where}` needs no credentials)"
        ) from error


def find_sweep(where: str, *, storage: str | None, namespace: str | None = None) -> FoundSweep:
    """Find a sweep's folder. Raises InvalidSpec, StoreMisconfigured, and errors of the cluster."""
    if _is_folder(where):
        return FoundSweep(folder=_folder_at(where))
    stored = stored_name(where, storage)
    if stored is not None:
        return FoundSweep(folder=_folder_at(stored))
    name = cluster_name(where, namespace)
    if name is not None:
        return found_sweep(_of_cluster(name))
    described = load_sweep(Path(where), storage=storage)
    return FoundSweep(folder=_folder_of(described), described=described)


def found_sweep(version: SweepVersion) -> FoundSweep:
    """The sweep of this TrainSweep of a cluster."""
    described = version.sweep
    return FoundSweep(folder=_folder_of(described), described=described, version=version)


def _of_cluster(name: ClusterName) -> SweepVersion:
    # Imported only here: aiohttp and the client library take half a second.
    from trainrun_operator.worlds.kubernetes.user_client import read_one_sweep  # noqa: PLC0415

    return read_one_sweep(name.name, name.namespace)


def names_sweep(where: str) -> bool:
    """Whether this is the file or the folder of a sweep. False if it cannot be read: the caller
    then reads it as a run's, which raises the error."""
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
