"""Who chooses the parameters of trials, by the name of a sampler.

Layer: runtime.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from trainrun.errors import InvalidSpec
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import SamplerName


def suggest_of(sampler: SamplerName, *, where: str = "spec.sampler.name") -> Suggest:
    """What chooses parameters by this sampler; to be kept, since it is faster the next time.

    Raises InvalidSpec where its library is missing.
    """
    match sampler:
        case "Random" | "Grid":
            return by_chance
        case "CmaEs":
            return _by_cmaes(where)
        case "TPE" | "QMC":
            return _by_optuna(sampler, where)


# Both libraries take a second to load, which others need not wait.


def _by_cmaes(where: str) -> Suggest:
    try:
        # For one of its other methods it would load this, which takes another second.
        with _left_out("scipy.stats"):
            from trainrun._samplers.cma_sampler import CmaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {_without('CmaEs', 'cmaes', error)}") from error
    return CmaSampler()


@contextmanager
def _left_out(module: str) -> Iterator[None]:
    """Whoever imports this module meanwhile is told that there is none, unless it is loaded."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # Python's sign for that
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def _by_optuna(sampler: SamplerName, where: str) -> Suggest:
    if sampler == "QMC" and importlib.util.find_spec("scipy") is None:
        raise InvalidSpec(
            f"{where}: QMC needs scipy, which is not here: pip install 'trainrun[sweep]'; in a "
            "cluster, an operator's image built with --build-arg QMC=1"
        )
    try:
        from trainrun._samplers.optuna_sampler import OptunaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {without_optuna(sampler, error)}") from error
    return OptunaSampler()


def without_optuna(who: str, error: ImportError) -> str:
    """Why `who` cannot work here, and the remedy."""
    return _without(who, "Optuna", error)


def _without(who: str, library: str, error: ImportError) -> str:
    return (
        f"{who} needs {library}, which cannot be loaded here ({error}): "
        "pip install 'trainrun[sweep]'"
    )
