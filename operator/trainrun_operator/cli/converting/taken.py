"""A document of which every field is either taken or listed: nothing gets lost silently.

Layer: cli, pure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]


class Fields:
    """The fields of a resource that nobody has taken yet."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Keep a copy."""
        self._rest: dict[str, Any] = copy.deepcopy(dict(document))

    def take(self, path: str) -> Any:
        """The value at `spec.like.this`, which is gone afterwards; None where there is none."""
        *parents, last = path.split(".")
        owner: Any = self._rest
        for key in parents:
            owner = owner.get(key) if isinstance(owner, dict) else None
        return owner.pop(last, None) if isinstance(owner, dict) else None

    def left(self) -> list[str]:
        """Paths of what is still there; a list is one value, and what is empty says nothing."""
        return [".".join(path) for path in _leaves(self._rest, ())]


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif value is not None and value != []:
        yield path
