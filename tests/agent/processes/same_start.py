"""Holds what a script has found after a warm start against what it finds after a cold one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainrun.agent.processes.environment import OF_AN_ATTEMPT
from trainrun.contract import variables

if TYPE_CHECKING:
    from collections.abc import Mapping

MORE = ("modules", "importers")
"""Lists to which a preload adds: modules, and folders that have been looked into."""
CHILDREN = ("spawn", "forkserver", "fork")


def differences(
    cold: Mapping[str, Any], warm: Mapping[str, Any], *, attempts_differ: bool = False
) -> list[str]:
    """What a script could tell a warm start by, besides modules that are there already;
    `attempts_differ`: and besides what each attempt is told anew."""
    expected, seen = _comparable(cold), _comparable(warm)
    if attempts_differ:
        for found in (expected, seen):
            _forget_attempt(found)
    wrong = []
    for name in MORE:
        # In the script's own folder nothing is looked for that is there already.
        if missing := set(expected.pop(name)) - {*seen.pop(name), cold["path"][0]}:
            wrong.append(f"{name}: {sorted(missing)} are missing")
    return [*wrong, *_unequal(expected, seen)]


def differences_of_torch(
    cold: Mapping[str, Any], warm: Mapping[str, Any], *, attempts_differ: bool = False
) -> list[str]:
    """The same of `properties_of_torch`. Every process draws numbers of its own."""
    expected, seen = dict(cold), dict(warm)
    wrong = []
    for mine, other in zip(expected.pop("drawn"), seen.pop("drawn"), strict=True):
        if mine == other:
            wrong.append(f"both drew {mine}")
    if seen.pop("modules") < expected.pop("modules"):
        wrong.append("a warm start has fewer modules")
    for found in (expected, seen):
        told = set(OF_AN_ATTEMPT) if attempts_differ else {variables.POSTS_URL}
        found["environment"] = {k: v for k, v in found["environment"].items() if k not in told}
        if attempts_differ:
            found["loaders"] = _without(found["loaders"], told)
    return [*wrong, *_unequal(expected, seen)]


def _unequal(cold: Any, warm: Any, at: str = "") -> list[str]:
    """Where two values differ, as far inside as they have the same shape."""
    if cold == warm:
        return []
    if isinstance(cold, dict) and isinstance(warm, dict):
        names = sorted({*cold, *warm})
        pairs = [(name, cold.get(name), warm.get(name)) for name in names]
    elif isinstance(cold, list) and isinstance(warm, list) and len(cold) == len(warm):
        pairs = [(str(n), a, b) for n, (a, b) in enumerate(zip(cold, warm, strict=True))]
    elif isinstance(cold, list) and isinstance(warm, list):
        mine, other = ([x for x in a if x not in b] for a, b in ((cold, warm), (warm, cold)))
        return [f"{at}: cold alone {mine!r}, warm alone {other!r}"]
    else:
        return [f"{at}: cold {cold!r}, warm {warm!r}"]
    return [line for name, a, b in pairs for line in _unequal(a, b, f"{at} {name}".strip())]


def _comparable(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what differs between any two starts."""
    text = json.dumps(found)
    port = found["environ"].get(variables.POSTS_URL)
    read: dict[str, Any] = json.loads(text.replace(port, "URL") if port else text)
    return read


def _forget_attempt(found: dict[str, Any]) -> None:
    """Without the variables that differ between two attempts."""
    told = set(OF_AN_ATTEMPT)
    found["environ"] = {k: v for k, v in found["environ"].items() if k not in told}
    lines = found["environ of children"]
    found["environ of children"] = [line for line in lines if line.partition("=")[0] not in told]
    for name in CHILDREN:
        found[name] = _without(found[name], told)


def _without(found: Any, names: set[str]) -> Any:
    """The same without these texts, wherever they stand in a list."""
    if isinstance(found, dict):
        return {name: _without(value, names) for name, value in found.items()}
    if isinstance(found, list):
        kept = (value for value in found if not isinstance(value, str) or value not in names)
        return [_without(value, names) for value in kept]
    return found
