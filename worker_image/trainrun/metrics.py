"""Metrics as they travel: flat names to numbers, strings and booleans, in a JSON-safe form.

JSON has no NaN and no infinities, yet a loss that turned NaN is the one a user most wants to see.
They travel as `{"float": "NaN"}`, on every way: socket, heartbeat, manifest, status, events.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as _quoted
from typing import TypeAlias

Metric: TypeAlias = int | float | str | bool
"""What a metric may be."""

_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(metrics: Mapping[str, object] | None) -> str:
    """Return the metrics of a report as a JSON object.

    Raises TypeError naming the key where a name is not a string or a value is neither number,
    string nor boolean (a tensor, an array, a nested mapping).
    """
    if metrics is None:
        return "{}"
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping of names to values, got {_kind(metrics)}")
    # Not by json.dumps: together with the conversion it takes three times as long, and all of
    # this runs in every step of a training.
    pairs = [f"{_name(key)}:{_value(key, value)}" for key, value in metrics.items()]
    return "{" + ",".join(pairs) + "}"


def decode(metrics: Mapping[str, object]) -> dict[str, Metric]:
    """Return the metrics that `to_json` wrote, once they are read as JSON.

    Values that it never writes are left out: a newer peer may send more than we can read.
    """
    return {key: value for key, raw in metrics.items() if (value := _decode_value(raw)) is not None}


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name of a metric must be a string, got {key!r:.80} ({_kind(key)})")
    return _quoted(key)


def _value(key: object, value: object) -> str:
    # The exact types first: the abstract ones take ten times as long.
    if type(value) is float:
        return _float(value)
    if type(value) is int:
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool) or _is_numpy_bool(value):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return repr(int(value))
    if isinstance(value, numbers.Real):
        return _float(float(value))
    raise TypeError(
        f"metric {key!r} is {_kind(value)}: metrics are numbers, strings and booleans{_hint(value)}"
    )


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
    if isinstance(raw, (bool, int, float, str)):
        return raw
    if isinstance(raw, Mapping):
        return _NAMES.get(str(raw.get("float")))
    return None


def _kind(value: object) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _hint(value: object) -> str:
    """What to write instead; tensors are refused since reading one waits for its device."""
    if hasattr(value, "item"):
        return "; pass a number, for one element value.item()"
    if isinstance(value, Mapping):
        return '; give the inner values flat names such as "loss/train"'
    if value is None:
        return "; leave the key out where there is no value"
    return ""
