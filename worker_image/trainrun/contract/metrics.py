"""Metrics of a step and metadata of a checkpoint, as JSON.

Layer: contract, pure. Metrics map flat names to numbers, strings and booleans. JSON has no NaN and
no infinities, yet a NaN loss is the one that a user most wants to see; so they are encoded as
`{"float": "NaN"}` everywhere: socket, heartbeat, manifest, status, events. Their size is bounded at
the source: a metric that is too large is left out and named, so that it cannot block a checkpoint
or a heartbeat.

Metadata is any JSON object that is small and shallow. It is part of the manifest, which all starts
read; the bounds ensure that any reader can parse it, at any depth of its own call stack.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, TypeAlias

from trainrun._common.text import cleaned

LONGEST_METRIC = 4096
"""Maximum bytes of one metric as JSON, including its name."""
LONGEST_METRICS = 64 * 1024
"""Maximum bytes of all metrics of a report."""

Metric: TypeAlias = int | float | str | bool
"""The type of a metric's value."""

OF_TASKS = "tasks_rebuilt"
"""Reported only by programs of tasks, with other counts: such a run needs no checkpoints."""

LARGEST_BITS = 1024
"""Limit for integers: JSON readers treat numbers as floats."""

_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(
    metrics: Mapping[str, object] | None, left_out: Callable[[str], object] = lambda _key: None
) -> str:
    """Return the metrics of a report as a JSON object; calls `left_out` with the key of each metric
    that is too large.

    Raises TypeError naming the key if a name is not a string, or a value is not a number, string or
    boolean (a tensor, an array, a nested mapping).
    """
    if metrics is None:
        return "{}"
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping of names to values, got {_kind(metrics)}")
    # json.dumps, with the conversion, would take three times as long, and this code runs in each
    # step of a training.
    pairs = [f"{_name(key)}:{_value(key, value)}" for key, value in metrics.items()]
    text = "{" + ",".join(pairs) + "}"
    if len(text) <= LONGEST_METRIC:
        return text
    return "{" + ",".join(_fitting(dict(zip(metrics, pairs, strict=True)), left_out)) + "}"


def _fitting(pairs: Mapping[str, str], left_out: Callable[[str], object]) -> list[str]:
    """The metrics, in order, that fit; `left_out` is called with the others."""
    kept, room = [], LONGEST_METRICS - len("{}")
    for key, pair in pairs.items():
        if len(pair) > LONGEST_METRIC or len(pair) >= room:
            left_out(key)
        else:
            kept.append(pair)
            room -= len(pair) + len(",")
    return kept


def bounded(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics received from a peer, without those that `to_json` would never write."""
    sound = {
        cleaned(key): cleaned(value) if isinstance(value, str) else value
        for key, value in metrics.items()
        if _decode_value(value) is not None
    }
    if len(json.dumps(sound)) <= LONGEST_METRIC:  # nearly all
        return sound
    pairs = {key: f"{_quoted(key)}:{json.dumps(value)}" for key, value in sound.items()}
    lost: set[str] = set()
    _fitting(pairs, lost.add)
    return {key: value for key, value in sound.items() if key not in lost}


def decode(metrics: Mapping[str, object]) -> dict[str, Metric]:
    """Decode metrics from parsed JSON that `to_json` wrote.

    Values that it never writes are left out: a newer peer may send more than we can read.
    """
    return {key: value for key, raw in metrics.items() if (value := _decode_value(raw)) is not None}


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name of a metric must be a string, got {key!r:.80} ({_kind(key)})")
    return _quoted(key)


def _value(key: object, value: object) -> str:
    # Exact types first: checks against the abstract ones take ten times as long.
    if type(value) is float:
        return _float(value)
    if type(value) is int:
        return _integer(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool) or _is_numpy_bool(value):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return _integer(int(value))
    if isinstance(value, numbers.Real):
        return _float(float(value))
    raise TypeError(
        f"metric {key!r} is {_kind(value)}: metrics are numbers, strings and booleans{_hint(value)}"
    )


def _integer(value: int) -> str:
    if value.bit_length() < LARGEST_BITS:
        return repr(value)
    return _float(math.inf if value > 0 else -math.inf)  # like a float of this size


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return '{"float":"NaN"}'
    return '{"float":"Infinity"}' if value > 0 else '{"float":"-Infinity"}'


def _is_numpy_bool(value: object) -> bool:
    cls = type(value)
    return cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")


def _decode_value(raw: object) -> Metric | None:
    if isinstance(raw, float) and not math.isfinite(raw):
        return None  # we never write these
    if isinstance(raw, int) and raw.bit_length() >= LARGEST_BITS:
        return None
    if isinstance(raw, (bool, int, float, str)):
        return raw
    if isinstance(raw, Mapping):
        return _NAMES.get(str(raw.get("float")))
    return None


def _kind(value: object) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _hint(value: object) -> str:
    """What to pass instead; tensors are refused because reading one waits for its device."""
    if hasattr(value, "item"):
        return "; pass a number: for one element, value.item()"
    if isinstance(value, Mapping):
        return '; give the inner values flat names such as "loss/train"'
    if value is None:
        return "; leave out the key if there is no value"
    return ""


LONGEST_METADATA = 64 * 1024
"""Maximum bytes as JSON."""
DEEPEST_METADATA = 16
"""Maximum nesting of objects and lists."""

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def metadata_json(metadata: Mapping[str, object]) -> str:
    """Return the metadata as a JSON object; it may be longer than LONGEST_METADATA.

    Raises TypeError if it is not a mapping, contains what JSON cannot express (NaN, a tensor, a
    name that is not a string), or is nested too deeply.
    """
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping of names to values, got {_kind(metadata)}")
    plain = _plain(metadata, at="metadata", room=DEEPEST_METADATA)
    try:
        return _encode(plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"metadata is not JSON: {error}") from error


def _plain(value: object, *, at: str, room: int) -> object:
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if room == 0:
        raise TypeError(f"{at} is nested more than {DEEPEST_METADATA} objects and lists deep")
    if not isinstance(value, Mapping):
        return [_plain(item, at=f"{at}[{n}]", room=room - 1) for n, item in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{at}: names must be strings, got {key!r:.80} ({_kind(key)})")
    return {key: _plain(item, at=f"{at}.{key:.40}", room=room - 1) for key, item in value.items()}
