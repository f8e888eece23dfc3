"""Reads the API server's JSON without trusting its shape.

Layer: kube, leaf. A projection must never raise: a missing field or one of another
type reads as empty, since one odd object must not end the watch of all others. Objects are `dict`s,
as JSON makes them: a check for any Mapping costs a third of the time of a projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trainrun._common.text import cleaned

LONGEST = 600
"""Characters kept of a message: it may end up in a status of bounded size."""

MOST_DIGITS = 9
"""Of a number in a label; we never write larger ones."""

_NONE: Mapping[str, Any] = {}


_NAMED_BY = ("namespace", "name", "uid", "resourceVersion", "generation", "deletionTimestamp")


def named(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Only what identifies an object in this version, and whether it is being deleted."""
    metadata = mapping(raw, "metadata")
    return {"metadata": {key: metadata[key] for key in _NAMED_BY if key in metadata}}


def mapping(owner: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at `path`; an empty one if there is none."""
    found: object = owner
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else _NONE


def objects(owner: Mapping[str, Any], key: str) -> tuple[Mapping[str, Any], ...]:
    """The list of objects under `key`."""
    found = owner.get(key)
    items = found if isinstance(found, list) else []
    return tuple(item for item in items if isinstance(item, dict))


def text(owner: Mapping[str, Any], key: str) -> str:
    """The string under `key`, cleaned and cut to LONGEST characters: a container's last output,
    for example, can hold anything."""
    found = owner.get(key)
    return cleaned(found.strip()[:LONGEST]) if isinstance(found, str) else ""


def words(owner: Mapping[str, Any], key: str, *, most: int) -> tuple[str, ...]:
    """The first `most` comma-separated words of the string under `key`; each as `text`."""
    found = owner.get(key)
    parts = found.split(",", most)[:most] if isinstance(found, str) else []
    return tuple(filter(None, (cleaned(part.strip()[:LONGEST]) for part in parts)))


def number(owner: Mapping[str, Any], key: str) -> int | None:
    """The whole number under `key`."""
    found = owner.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def count(labels: Mapping[str, Any], key: str) -> int | None:
    """The number (0 or more) written as text under `key`."""
    found = text(labels, key)
    ours = found.isascii() and found.isdecimal() and len(found) <= MOST_DIGITS
    return int(found) if ours else None


def controller(metadata: Mapping[str, Any]) -> str:
    """The uid of the controlling owner of the object with this metadata."""
    owners = objects(metadata, "ownerReferences")
    return next((text(owner, "uid") for owner in owners if owner.get("controller") is True), "")


def moment(owner: Mapping[str, Any], key: str) -> datetime | None:
    """The time under `key`, in UTC."""
    found = owner.get(key)
    if not isinstance(found, str):
        return None
    try:
        time = datetime.fromisoformat(found)
        return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
