"""From `FILE|URI|NAME` on the command line to the sources of the runs that it names.

Layer: cli. `NAME` and `NAMESPACE/NAME` are objects in the cluster of the kubeconfig.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.cli.preparation import holds_sweep, load_file
from trainrun_operator.cli.sources import ClusterSource, RunState, Source, UnknownRun, score_of
from trainrun_operator.worlds.local.place import place_of, places_root

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.run_object import RunVersion
    from trainrun_operator.worlds.kubernetes.user_client import Namesakes


FILES = (".yaml", ".yml", ".json")
"""Endings that mark the name of a file, even if there is no such file."""

_NAME = re.compile(r"(?:([a-z0-9][a-z0-9-]*)/)?([a-z0-9][a-z0-9.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterName:
    """The name of an object in the cluster."""

    name: str
    namespace: str | None
    """None: the namespace of the kubeconfig's current context."""


def cluster_name(where: str, namespace: str | None = None) -> ClusterName | None:
    """The object in the cluster that `where` names; None: it names a file, a folder or a URI."""
    found = _NAME.fullmatch(where)
    if found is None or where.endswith(FILES) or Path(where).exists():
        return None
    return ClusterName(name=found[2], namespace=found[1] or namespace)


def stored_name(where: str, storage: str | None) -> str | None:
    """The URI of the folder `NAME` in `storage`; None: `where` names something else."""
    if storage is None or "/" in where or cluster_name(where) is None:
        return None
    return f"{storage.rstrip('/')}/{where}"


def find_runs(where: str, *, storage: str | None, namespace: str | None = None) -> list[Source]:
    """The run of a YAML file, the run `<uri>/<name>`, the runs below a URI that this machine knows,
    or the TrainRun `NAME` or `NAMESPACE/NAME` in the cluster of the user's kubeconfig; with
    `storage`, NAME is the run `<storage>/<name>`.

    Raises InvalidSpec if there is neither such a file nor such a run, and the errors of a cluster.
    """
    if "://" in where:
        return _below(where)
    path = Path(where)
    if path.is_dir():
        return _below(path.resolve().as_uri())
    stored = stored_name(where, storage)
    if stored is not None:
        return [_source(where, stored.rpartition("/")[0])]
    name = cluster_name(where, namespace)
    if name is not None:
        return [_of_cluster(name)]
    return [_of_file(path, storage)]


def find_run(where: str, *, storage: str | None, namespace: str | None = None) -> Source:
    """The only run that `where` names. Raises UnknownRun if there are several, and InvalidSpec."""
    found = find_runs(where, storage=storage, namespace=namespace)
    if len(found) != 1:
        names = ", ".join(f"{run.storage}/{run.name}" for run in found)
        raise UnknownRun(f"{where} holds several runs; name one of them: {names}")
    return found[0]


def _of_file(path: Path, storage: str | None) -> Source:
    if path.is_file() and holds_sweep(path):
        raise _a_sweep(str(path))
    return source_of(load_file(path, storage=storage))


def source_of(run: TrainRun) -> Source:
    """The source of the run that this describes, without its status."""
    at = run.spec.storage
    return Source(
        name=run.run_name,
        storage=at.uri,
        endpoint_url=at.endpoint_url,
        region=at.region,
        score=score_of(run.spec.checkpoint),
        place=place_of(at.uri, run.run_name, environ=os.environ),
    )


def namesakes(name: ClusterName) -> Namesakes:
    """The TrainRun and the TrainSweep of this name in the cluster. Raises the errors of the
    cluster, also if neither exists."""
    # Imports aiohttp and the client library: half a second that other commands save.
    from trainrun_operator.worlds.kubernetes.user_client import read_namesakes  # noqa: PLC0415

    return read_namesakes(name.name, name.namespace)


def _of_cluster(name: ClusterName) -> Source:
    found = namesakes(name)
    if found.run is not None:
        return cluster_source(found.run)
    assert found.sweep is not None, "one of them exists"
    raise _a_sweep(found.sweep.where)


def _a_sweep(where: str) -> UnknownRun:
    return UnknownRun(
        f"{where} is a TrainSweep, and this command takes a run, such as one of its trials. See "
        f"its state with `trainrun sweep status {where}`, its story with `trainrun explain "
        f"{where}`"
    )


def cluster_source(version: RunVersion) -> ClusterSource:
    """The source of a TrainRun that was read from a cluster."""
    run, at = version.run, source_of(version.run)
    return ClusterSource(
        name=at.name,
        storage=at.storage,
        endpoint_url=at.endpoint_url,
        region=at.region,
        score=at.score,
        place=at.place,
        known=RunState(
            uid=version.uid, status=version.status, leader=None, spec=version.raw["spec"]
        ),
        namespace=run.metadata.namespace,
        object_name=run.metadata.name,
        per_worker=version.config.processes_per_worker,
    )


def _below(uri: str) -> list[Source]:
    uri = uri.rstrip("/")
    root = places_root(uri, environ=os.environ)
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    if names:
        return [_source(name, uri) for name in names]
    parent, _, name = uri.rpartition("/")
    if not name or parent.endswith(":/"):
        raise InvalidSpec(
            f"{uri}: this machine knows no run there; name one ({uri}/<run name>) or its file"
        )
    return [_source(name, parent)]


def _source(name: str, uri: str) -> Source:
    return Source(name=name, storage=uri, place=place_of(uri, name, environ=os.environ))
