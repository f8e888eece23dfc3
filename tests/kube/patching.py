"""Changing a part of an object, which the operator never does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainrun_operator.kube.errors import Conflict

if TYPE_CHECKING:
    from tests.kube.objects import Raw
    from trainrun_operator.kube.api import KubeApi


async def patch(api: KubeApi, path: str, change: Raw) -> Raw:
    """The object after this JSON merge patch, whoever else writes at the same time."""
    while True:
        before = await api.get(path)
        try:
            return await api.put(path, merged(before, change))
        except Conflict:
            pass  # somebody was faster: again, on top of that


def merged(value: object, change: object) -> Any:
    """As RFC 7386 says: objects are merged, None deletes, everything else replaces."""
    if not isinstance(change, Mapping):
        return change
    before = value if isinstance(value, Mapping) else {}
    after = {**before, **{key: merged(before.get(key), part) for key, part in change.items()}}
    return {key: part for key, part in after.items() if part is not None}
