"""Who chooses the parameters of trials, by the name of a sampler.

Layer: runtime.
"""

from __future__ import annotations

from trainrun.errors import InvalidSpec
from trainrun.sweep.clerk import Suggest
from trainrun.sweep.samplers import by_chance
from trainrun.sweep.search import BY_OPTUNA, SamplerName


def suggest_of(sampler: SamplerName, *, where: str = "spec.sampler.name") -> Suggest:
    """What chooses parameters by this sampler; to be kept, since it is faster the next time.

    Raises InvalidSpec where its library is missing.
    """
    if sampler not in BY_OPTUNA:
        return by_chance
    try:
        # A second that others need not.
        from trainrun.optuna_sampler import OptunaSampler  # noqa: PLC0415
    except ImportError as error:
        raise InvalidSpec(f"{where}: {without_optuna(sampler, error)}") from error
    return OptunaSampler()


def without_optuna(who: str, error: ImportError) -> str:
    """Why `who` cannot work here, and the remedy."""
    return (
        f"{who} needs Optuna, which cannot be loaded here ({error}): pip install 'trainrun[sweep]'"
    )
