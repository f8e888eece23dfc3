"""The context of this process: its run, attempt and rank, and the parameters of its trial.

Read from the environment, so it works alike under an agent, under `torchrun` (which sets the same
variables for the rank) and under plain `python` (which sets none: rank 0 of 1, attempt 1). A
sweep's parameters pass through any launcher that passes on its environment; without them the
defaults apply.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from trainrun.contract import variables
from trainrun.contract.environment import Exchange, ProcessPlace, place_of, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(ProcessPlace):
    """The place of this process in its run; constant for the life of the process."""

    def get_world_rank(self) -> int:
        """Return `rank` (Ray Train's name for it)."""
        return self.rank

    def get_world_size(self) -> int:
        """Return `world_size` (Ray Train's name for it)."""
        return self.world_size

    def get_local_rank(self) -> int:
        """Return `local_rank` (Ray Train's name for it)."""
        return self.local_rank

    def get_local_world_size(self) -> int:
        """Return `local_world_size` (Ray Train's name for it)."""
        return self.local_world_size

    def get_node_rank(self) -> int:
        """Return `node_rank` (Ray Train's name for it)."""
        return self.node_rank

    def get_experiment_name(self) -> str:
        """Return `run` (Ray Train's name for it)."""
        return self.run


def get_context() -> Context:
    """Return the run, attempt and rank of this process.

    Raises ValueError naming an environment variable that is not a number.
    """
    context = Context.read(os.environ)
    given = Exchange.read(os.environ)
    if given is not None and given.place == place_of(context):
        with suppress(OSError):  # the agent has exited and does not need it
            placed(given.control_file).touch()
    return context


Param = bool | int | float | str
"""A parameter's value."""


def get_params(defaults: Mapping[str, Param] | None = None) -> dict[str, Param]:
    """Return the parameters of this trial by name, with `defaults` for missing ones.

    A default applies if the trial lacks the parameter: outside a sweep, and where its `when` does
    not hold. An integer becomes a float if the default is a float. Raises ValueError if
    `TRAINRUN_PARAMS` is set and is not a JSON object.
    """
    chosen = dict(defaults or {})
    for name, value in _given(os.environ.get(variables.PARAMS, "")).items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        chosen[name] = float(value) if whole and isinstance(chosen.get(name), float) else value
    return chosen


def _given(text: str) -> dict[str, Param]:
    if not text:
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{variables.PARAMS} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"{variables.PARAMS} must be a JSON object, not {text:.80}")
    return given
