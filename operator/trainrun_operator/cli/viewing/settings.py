"""What runs were started with, as names and values, and where they differ.

Layer: cli; pure. Options in a container's command and args have rows of their own. Values of
environment variables are not shown: they hold credentials more often than parameters.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainrun.contract.masking import masked

Settings = Mapping[str, str]
"""Value by name, such as `checkpoint.keep` or `containers[train] --lr`."""
SET, OTHERWISE = "set", "set otherwise"
"""Shown in place of the values of an environment variable."""
POD = "workers.template.spec."
"""Left out of names."""


def settings_of(spec: Mapping[str, object]) -> Settings:
    """The settings in the spec of a TrainRun; an option that is repeated has all its values."""
    found: dict[str, list[str]] = {}
    for path, text in _values(spec, ""):
        name, value = _masked(path.removeprefix(POD), text)
        found.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def differences(runs: Sequence[Settings]) -> dict[str, tuple[str, ...]]:
    """The settings whose values are not the same in all runs, in order; empty: a run lacks it."""
    found = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = tuple(run.get(name, "") for run in runs)
        if len(set(values)) > 1:
            found[name] = _without_values(values) if " env " in name else values
    return found


def _without_values(values: Sequence[str]) -> tuple[str, ...]:
    first = next(value for value in values if value)
    return tuple((SET if value == first else OTHERWISE) if value else "" for value in values)


def _masked(name: str, value: str) -> tuple[str, str]:
    """Its name tells whether a value is a secret."""
    if " env " in name:
        return name, value  # compared, never shown
    last = name.rpartition(".")[2].rpartition(" ")[2]
    about = f"{last} " if last.startswith("-") else f"{last}="
    return name, masked(f"{about}{value}").removeprefix(about)


def _values(value: object, path: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            words = [word for key in ("command", "args") for word in _words(value.get(key))]
            for name, word in _options(words):
                yield f"{path} {name}", word
            for key, part in value.items():
                if key == "env":
                    yield from ((f"{path} env {name}", text) for name, text in _variables(part))
                elif not (key in ("command", "args") and words):
                    yield from _values(part, f"{path}.{key}" if path else str(key))
        case list() if value and all(isinstance(part, dict) and "name" in part for part in value):
            for part in value:
                rest = {key: each for key, each in part.items() if key != "name"}
                yield from _values(rest, f"{path}[{part['name']}]")
        case list():
            yield path, ", ".join(map(str, value))
        case None:
            pass
        case _:
            yield path, str(value)


def _variables(value: object) -> Iterator[tuple[str, str]]:
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            # A value that is empty is one, too.
            rest = {key: each for key, each in entry.items() if key != "name"}
            yield str(entry.get("name", "")), f"={rest}"


def _words(value: object) -> Iterator[str]:
    """The words of a command; a script for a shell is split into its own."""
    for word in value if isinstance(value, list) else ():
        try:
            yield from shlex.split(str(word)) if " " in str(word) else (str(word),)
        except ValueError:  # quotes that do not end
            yield str(word)


def _options(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`--lr 0.1` and `--lr=0.1` as ("--lr", "0.1"); other words by their places."""
    left, place = [*words], 0
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            place += 1
            yield f"word {place}", word
        elif "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        else:
            yield word, left.pop(0) if left and not left[0].startswith("-") else SET
