"""`NAME` and `NAMESPACE/NAME` on the command line: an object of the cluster of the kubeconfig.

Layer: cli.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FILES = (".yaml", ".yml", ".json")
"""How names end that are those of files, also where there is none."""

_NAME = re.compile(r"(?:([a-z0-9][a-z0-9-]*)/)?([a-z0-9][a-z0-9.-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterName:
    """An object is meant."""

    name: str
    namespace: str | None
    """None: that of the kubeconfig's current context."""


def cluster_name(where: str, namespace: str | None = None) -> ClusterName | None:
    """What `where` means in the cluster; None: a file, a folder or a URI is meant."""
    found = _NAME.fullmatch(where)
    if found is None or where.endswith(FILES) or Path(where).exists():
        return None
    return ClusterName(name=found[2], namespace=found[1] or namespace)


def stored_name(where: str, storage: str | None) -> str | None:
    """With `storage`, `NAME` is a folder there: its address. None: something else is meant."""
    if storage is None or "/" in where or cluster_name(where) is None:
        return None
    return f"{storage.rstrip('/')}/{where}"
