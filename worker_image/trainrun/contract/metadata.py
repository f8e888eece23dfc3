"""What a script says of a checkpoint: any JSON object that is small and not deep.

Layer: contract, pure. It stands in the manifest, which every start reads; so whatever is taken here
can be read back by every reader, at any depth of its own calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

LONGEST = 64 * 1024
"""Bytes as JSON."""
DEEPEST = 16
"""Objects and lists within each other."""

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def to_json(metadata: Mapping[str, object]) -> str:
    """Return it as a JSON object; may be longer than LONGEST.

    Raises TypeError where it is no mapping, holds what JSON has no word for (NaN, a tensor, a name
    that is no string), or is nested too deeply.
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of names to values, got {_kind(metadata)}")
    plain = _plain(metadata, at="metadata", room=DEEPEST)
    try:
        return _encode(plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"metadata is not JSON: {error}") from error


def _plain(value: object, *, at: str, room: int) -> object:
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if room == 0:
        raise TypeError(f"{at} lies more than {DEEPEST} objects and lists deep")
    if not isinstance(value, Mapping):
        return [_plain(item, at=f"{at}[{n}]", room=room - 1) for n, item in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{at}: names must be strings, got {key!r:.80} ({_kind(key)})")
    return {key: _plain(item, at=f"{at}.{key:.40}", room=room - 1) for key, item in value.items()}


def _kind(value: object) -> str:
    return type(value).__qualname__
