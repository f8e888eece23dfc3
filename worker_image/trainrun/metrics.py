"""Metrics as they travel: flat names to numbers, strings and booleans, in a JSON-safe form.

JSON has no NaN and no infinities, yet a loss that turned NaN is the one a user most wants to see.
They travel as `{"float": "NaN"}`, on every way: socket, heartbeat, manifest, status, events.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import TypeAlias

Metric: TypeAlias = int | float | str | bool
"""What a metric may be."""

Json: TypeAlias = int | float | str | bool | dict[str, str]
"""What a metric is on the way: itself, or a wrapped non-finite float."""

_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode(metrics: Mapping[str, object] | None) -> dict[str, Json]:
    """Return the JSON-safe form of the metrics of a report.

    Raises TypeError naming the key where a name is not a string or a value is neither number,
    string nor boolean (a tensor, an array, a nested mapping).
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping of names to values, got {_kind(metrics)}")
    return {_name(key): _encode_value(key, value) for key, value in metrics.items()}


def decode(metrics: Mapping[str, object]) -> dict[str, Metric]:
    """Return the metrics that `encode` wrapped.

    Values that it never writes are left out: a newer peer may send more than we can read.
    """
    return {key: value for key, raw in metrics.items() if (value := _decode_value(raw)) is not None}


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the name of a metric must be a string, got {key!r:.80} ({_kind(key)})")
    return key


def _encode_value(key: object, value: object) -> Json:
    # The exact types first: the abstract ones cost a training loop ten microseconds.
    if type(value) is float:
        return _encode_float(value)
    if type(value) is int or type(value) is bool:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _encode_float(float(value))
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise TypeError(
        f"metric {key!r} is {_kind(value)}: metrics are numbers, strings and booleans{_hint(value)}"
    )


def _encode_float(value: float) -> Json:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return {"float": "NaN"}
    return {"float": "Infinity" if value > 0 else "-Infinity"}


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
