"""What a script says beside its files, as JSON: metrics of a step, metadata of a checkpoint.

Layer: contract, pure. Metrics are flat names to numbers, strings and booleans. JSON has no NaN and
no infinities, yet a loss that turned NaN is the one a user most wants to see. They travel as
`{"float": "NaN"}`, on every way: socket, heartbeat, manifest, status, events. Their size is bounded
where they enter: a metric that is too large is left out and named, so that it can stop neither a
checkpoint nor a heartbeat.

Metadata is any JSON object that is small and not deep. It stands in the manifest, which every start
reads; so whatever is taken here can be read back by every reader, at any depth of its own calls.
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
"""Bytes of one metric as JSON, its name included."""
LONGEST_METRICS = 64 * 1024
"""Bytes of all metrics of a report."""

Metric: TypeAlias = int | float | str | bool
"""What a metric may be."""

OF_TASKS = "tasks_rebuilt"
"""Reported by programs of tasks alone, beside other counts: who has it needs no checkpoints."""

LARGEST_BITS = 1024
"""Of an integer: readers of JSON take numbers for floats."""

_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(
    metrics: Mapping[str, object] | None, left_out: Callable[[str], object] = lambda _key: None
) -> str:
    """Return the metrics of a report as a JSON object; `left_out` is called with the key of each
    that is too large.

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
    text = "{" + ",".join(pairs) + "}"
    if len(text) <= LONGEST_METRIC:
        return text
    return "{" + ",".join(_fitting(dict(zip(metrics, pairs, strict=True)), left_out)) + "}"


def _fitting(pairs: Mapping[str, str], left_out: Callable[[str], object]) -> list[str]:
    """As many of them, in their order, as there is room for."""
    kept, room = [], LONGEST_METRICS - len("{}")
    for key, pair in pairs.items():
        if len(pair) > LONGEST_METRIC or len(pair) >= room:
            left_out(key)
        else:
            kept.append(pair)
            room -= len(pair) + len(",")
    return kept


def bounded(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as another one has sent them, as far as `to_json` may have written them."""
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
    return _float(math.inf if value > 0 else -math.inf)  # as a float of this size is


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
        return None  # never so in what we write
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
    """What to write instead; tensors are refused since reading one waits for its device."""
    if hasattr(value, "item"):
        return "; pass a number, for one element value.item()"
    if isinstance(value, Mapping):
        return '; give the inner values flat names such as "loss/train"'
    if value is None:
        return "; leave the key out where there is no value"
    return ""


LONGEST_METADATA = 64 * 1024
"""Bytes as JSON."""
DEEPEST_METADATA = 16
"""Objects and lists within each other."""

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def metadata_json(metadata: Mapping[str, object]) -> str:
    """Return it as a JSON object; may be longer than LONGEST_METADATA.

    Raises TypeError where it is no mapping, holds what JSON has no word for (NaN, a tensor, a name
    that is no string), or is nested too deeply.
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
        raise TypeError(f"{at} lies more than {DEEPEST_METADATA} objects and lists deep")
    if not isinstance(value, Mapping):
        return [_plain(item, at=f"{at}[{n}]", room=room - 1) for n, item in enumerate(value)]
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{at}: names must be strings, got {key!r:.80} ({_kind(key)})")
    return {key: _plain(item, at=f"{at}.{key:.40}", room=room - 1) for key, item in value.items()}
