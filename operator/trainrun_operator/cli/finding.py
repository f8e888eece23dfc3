"""From `FILE|URI` on the command line to the run that is meant.

Layer: cli.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.preparation import load_file
from trainrun_operator.worlds.local.place import RunPlace, place_of, places_root


class UnknownRun(TrainRunError):
    """Nothing is known of the run that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """One run, wherever its storage is."""

    name: str
    uri: str
    place: RunPlace
    endpoint_url: str | None = None
    region: str | None = None


def find_runs(where: str, *, storage: str | None) -> list[FoundRun]:
    """The run of a YAML file, the run `<uri>/<name>`, or the runs known here below a URI.

    Raises InvalidSpec when there is neither such a file nor such a run.
    """
    if "://" not in where:
        path = Path(where)
        return _below(path.resolve().as_uri()) if path.is_dir() else [_of_file(path, storage)]
    return _below(where)


def _of_file(path: Path, storage: str | None) -> FoundRun:
    run = load_file(path, storage=storage)
    at = run.spec.storage
    return FoundRun(
        name=run.run_name,
        uri=at.uri,
        place=place_of(at.uri, run.run_name, environ=os.environ),
        endpoint_url=at.endpoint_url,
        region=at.region,
    )


def _below(uri: str) -> list[FoundRun]:
    uri = uri.rstrip("/")
    root = places_root(uri, environ=os.environ)
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    if names:
        return [_named(uri, name) for name in names]
    parent, _, name = uri.rpartition("/")
    if not name or parent.endswith(":/"):
        raise InvalidSpec(
            f"{uri}: this machine knows of no run there; name one ({uri}/<run name>) or its file"
        )
    return [_named(parent, name)]


def _named(uri: str, name: str) -> FoundRun:
    return FoundRun(name=name, uri=uri, place=place_of(uri, name, environ=os.environ))
