"""The same trials under Ray Tune with OptunaSearch; prints the seconds that they took."""

from __future__ import annotations

import sys
import time

from ray import tune
from ray.tune.search.optuna import OptunaSearch


def trial(config: dict[str, float]) -> None:
    for step in range(1, 6):
        tune.report({"loss": (config["x"] - 0.3) ** 2 / step})


begun = time.monotonic()
tune.Tuner(
    trial,
    param_space={"x": tune.uniform(0.0, 1.0)},
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        search_alg=OptunaSearch(),
        num_samples=int(sys.argv[1]),
        max_concurrent_trials=2,
    ),
    run_config=tune.RunConfig(verbose=0),
).fit()
print(f"seconds {time.monotonic() - begun:.2f}")
