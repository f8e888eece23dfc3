"""The TrainSweep of a simulated life: drawn, edited, applied again; as the API server has it.

Layer: simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation.world.sweep.storage import SWEEP
from tests.simulation.world.sweep.trials import METRIC
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.core.sweep.config import SweepConfig, sweep_config

MOST_TRIALS = 12

Spec = Mapping[str, Any]

_CONTAINER = {"name": "worker", "image": "train", "command": ["python3", "train.py"]}
BASE: Spec = {
    "storage": {"uri": "s3://bucket/sweeps"},
    "objective": {"metric": METRIC, "goal": "minimize"},
    "space": [{"name": "lr", "float": {"low": 0.0, "high": 1.0}}],
    "run": {"workers": {"template": {"spec": {"containers": [_CONTAINER]}}}},
}

EARLY_STOPPING: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {"name": "ASHA", "options": {"minResource": 1, "reductionFactor": 2}},
    {"name": "Median", "options": {"startupTrials": 1}},
    {"name": "Threshold", "options": {"upper": 9.0}},
)


@dataclass(frozen=True, kw_only=True)
class SweepObject:
    """A version of it."""

    spec: Spec
    uid: str
    version: int = 1
    """metadata.resourceVersion."""
    generation: int = 1
    status: Mapping[str, Any] = field(default_factory=dict)
    config: SweepConfig
    """What decisions know of the spec."""

    @staticmethod
    def made(spec: Spec, *, uid: str, version: int) -> SweepObject:
        """As it is created."""
        return SweepObject(spec=spec, uid=uid, version=version, config=_config(spec, uid))

    def edited(self, spec: Spec) -> SweepObject:
        """With another spec."""
        return replace(
            self,
            spec=spec,
            version=self.version + 1,
            generation=self.generation + 1,
            config=_config(spec, self.uid),
        )

    @property
    def raw(self) -> dict[str, Any]:
        """As the API server shows it."""
        metadata = {
            "name": SWEEP,
            "namespace": "team",
            "uid": self.uid,
            "resourceVersion": str(self.version),
            "generation": self.generation,
        }
        head = {**TRAINSWEEP.head(), "metadata": metadata, "spec": dict(self.spec)}
        return {**head, "status": dict(self.status)} if self.status else head


def drawn_spec(random: Random) -> Spec:
    """A sweep of up to 12 trials."""
    spec: dict[str, Any] = {
        **BASE,
        "sampler": {"name": "Random", "seed": random.randrange(100)},
        "budget": {"trials": random.randint(1, MOST_TRIALS), **_time(random, 60, 400)},
        "maxConcurrent": random.randint(1, 4),
        "maxUnplaced": random.randint(1, 3),
        "maxFailedTrials": random.choice([-1, -1, 0, 2]),
        "retention": _retention(random),
    }
    if random.random() < 0.2:
        points = random.randint(1, MOST_TRIALS)
        spec["space"] = [{"name": "lr", "choice": [it / 10 for it in range(points)]}]
        spec["sampler"] = {"name": "Grid", "seed": 3}
        del spec["budget"]["trials"]
    stopping = random.choice(EARLY_STOPPING)
    return spec if stopping is None else {**spec, "earlyStopping": stopping}


def edited_spec(random: Random, spec: Spec) -> Spec:
    """What a user makes of it."""
    budget, numbers = spec["budget"], range(MOST_TRIALS)
    some = {it for it in numbers if random.random() < 0.2}
    stopped = set(spec.get("stoppedTrials", ()))
    edits: list[dict[str, Any]] = [
        {"suspend": not spec.get("suspend", False)},
        {"pausedTrials": sorted(some - stopped)},
        {
            "stoppedTrials": sorted(stopped | some),
            "pausedTrials": sorted(set(spec.get("pausedTrials", ())) - stopped - some),
        },
        {"budget": {**budget, "trials": random.randint(1, MOST_TRIALS)}},
        {"budget": {**_trials(budget), **_time(random, 100, 800)}},
        {"maxFailedTrials": random.choice([-1, 0, 3])},
        {"maxConcurrent": random.randint(1, 4)},
        {"maxUnplaced": random.randint(1, 4)},
        {"retention": _retention(random)},
    ]
    return {**spec, **random.choice(edits)}


def taken_up_again(random: Random, spec: Spec) -> Spec:
    """With the next token, and other flags."""
    errored = random.choice(["", "resumeErrored", "restartErrored"])
    flags = {errored: True} if errored else {}
    token = spec.get("resume", {}).get("token", 0) + 1
    again = {"token": token, "resumeUnfinished": random.random() < 0.7, **flags}
    return {**spec, "resume": again}


def applied_anew(spec: Spec) -> Spec:
    """As another object."""
    return {**spec, "resume": {**spec.get("resume", {}), "token": 0}}


def at_peace(spec: Spec) -> Spec:
    """With nothing that holds trials back."""
    return {**spec, "suspend": False, "pausedTrials": []}


def _retention(random: Random) -> dict[str, Any]:
    kept = random.choice([None, None, 1, 2])
    best = {} if kept is None else {"bestCheckpoints": kept}
    return {"failedRuns": random.randint(0, 3), **best}


def _time(random: Random, least: int, most: int) -> dict[str, Any]:
    return {"activeTime": f"{random.choice([least, most])}s"} if random.random() < 0.5 else {}


def _trials(budget: Mapping[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in budget.items() if key == "trials"}


def _config(spec: Spec, uid: str) -> SweepConfig:
    metadata = {"name": SWEEP, "namespace": "team", "uid": uid}
    document = {**TRAINSWEEP.head(), "metadata": metadata, "spec": dict(spec)}
    return sweep_config(TrainSweep.model_validate(document))
