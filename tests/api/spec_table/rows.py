"""What a row of the table of specs is: the least TrainRun, and what is changed in it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

BASE: dict[str, Any] = {
    "apiVersion": "trainrun.dev/v1alpha1",
    "kind": "TrainRun",
    "metadata": {"name": "digits"},
    "spec": {
        "workers": {
            "template": {
                "spec": {"containers": [{"name": "worker", "command": ["python", "train.py"]}]}
            }
        },
        "storage": {"uri": "s3://bucket/prefix"},
    },
}
"""The least a TrainRun needs."""

GONE = object()
"""Stands for: take the field out."""


def changed(changes: dict[str, object]) -> dict[str, Any]:
    """BASE with these dotted paths replaced, or taken out where the value is GONE."""
    document = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        owner = document
        for key in parents:
            owner = owner.setdefault(key, {})
        if value is GONE:
            del owner[last]
        else:
            owner[last] = value
    return document


@dataclass(frozen=True, slots=True)
class Case:
    """A spec: the changes to BASE, and the problems, each `path: what a user reads`."""

    name: str
    changes: dict[str, object] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        return changed(self.changes)

    @property
    def paths(self) -> set[str]:
        return {problem.partition(": ")[0] for problem in self.problems}


def ok(name: str, /, **changes: object) -> Case:
    return Case(name, {path.replace("__", "."): value for path, value in changes.items()})


def bad(name: str, changes: dict[str, object], *problems: str) -> Case:
    return Case(name, changes, problems)


def containers(*entries: object) -> dict[str, object]:
    return {"spec.workers.template.spec.containers": list(entries)}


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a stored object: changes to BASE before and after, and the paths refused."""

    name: str
    before: dict[str, object]
    after: dict[str, object]
    refused: frozenset[str] = frozenset()


URI = (
    "must be file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or "
    "az://container/prefix; a bucket has 3 to 63 characters (a-z, 0-9, . and -)"
)
DURATION = "must be a duration such as 90s, 1h30m or 500ms (units h, m, s, ms, in this order)"
DNS_LABEL = (
    "must consist of lower case letters, digits and dashes, and begin and end with a letter or "
    "digit"
)
