"""`trainrun version`: of the command, of the operator, and of the resources of a cluster.

Layer: cli.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from trainrun import __version__
from trainrun.errors import TrainRunError
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.worlds.kubernetes.installation import ClusterVersions, read_versions


def show_version(*, as_json: bool) -> None:
    """Print the versions, as lines or as one JSON object."""
    found, why = None, ""
    try:
        found = read_versions()
    except TrainRunError as error:
        why = str(error)
    cluster = None if found is None else asdict(found)
    data = {"command": __version__, "cluster": cluster, "clusterError": why or None}
    show_lines(_lines(found, why), data, as_json=as_json)


def _lines(found: ClusterVersions | None, why: str) -> Iterator[str]:
    yield f"command     {__version__}"
    if found is None:
        yield f"cluster     not asked: {why}"
        return
    yield f"operator    {_operators(found)}"
    yield f"resources   {', '.join(found.served) or 'none: the CRDs are not installed'}"
    yield f"Kubernetes  {found.kubernetes.removeprefix('v')}"


def _operators(found: ClusterVersions) -> str:
    if found.operators is None:
        return "unknown: you may not list Deployments"
    told = (f"{it.version} ({it.namespace}/{it.name})" for it in found.operators)
    return ", ".join(told) or "none is installed"
