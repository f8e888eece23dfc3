"""Where the contenders for a Lease can be reached, written into the Lease itself.

Layer: kube, pure: JSON objects in and out. Who holds the Lease stands first, behind him who came
later before who came earlier. Nobody takes back the address of a process that has died, so only
MOST are kept; a process that is started again in its pod has the address that it had.
"""

from __future__ import annotations

import re
from typing import Any

ANNOTATION = "trainrun.dev/operators"
"""`address:port` of each, separated by commas."""
MOST = 6

_PLACE = re.compile(r"[\w.:\[\]-]{1,80}", re.ASCII)
"""Whoever may write the Lease may write anything."""

Object = dict[str, Any]


def addresses(lease: Object) -> tuple[str, ...]:
    """The holder's first, as far as they are known."""
    text = (lease.get("metadata", {}).get("annotations") or {}).get(ANNOTATION, "")
    return tuple(filter(_PLACE.fullmatch, text.split(",")))


def held(lease: Object, address: str) -> Object:
    """The Lease once this contender has taken it."""
    return _with(lease, (address, *_without(lease, address)))


def joined(lease: Object, address: str) -> Object:
    """The Lease with this contender in it; the same if it is there already."""
    known = addresses(lease)
    return lease if address in ("", *known) else _with(lease, (*known[:1], address, *known[1:]))


def left(lease: Object, address: str) -> Object:
    """The Lease without this contender."""
    return _with(lease, _without(lease, address))


def _without(lease: Object, address: str) -> tuple[str, ...]:
    return tuple(known for known in addresses(lease) if known != address)


def _with(lease: Object, known: tuple[str, ...]) -> Object:
    metadata = lease["metadata"]
    text = ",".join(filter(None, known[:MOST]))
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: text}
    return {**lease, "metadata": {**metadata, "annotations": annotations}}
