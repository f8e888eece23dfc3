"""The parameters of a sweep's trial: what the script is to try.

Read from the environment, so a script finds them under an agent, and under `torchrun` or another
launcher that passes its environment on. Under plain `python` there are none: the defaults hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from trainrun.contract import variables

Param = bool | int | float | str
"""A parameter's value."""


def get_params(defaults: Mapping[str, Param] | None = None) -> dict[str, Param]:
    """Return the parameters of this trial by name, over `defaults`.

    A default holds where the trial does not have the parameter: outside a sweep, and where its
    `when` does not apply. A whole number is handed over as a float where the default is one.
    Raises ValueError where `TRAINRUN_PARAMS` is set and holds no JSON object.
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
        raise ValueError(f"{variables.PARAMS} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError(f"{variables.PARAMS} must be a JSON object, not {text:.80}")
    return given
