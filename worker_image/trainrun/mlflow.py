"""Finds the MLflow run of this run after a restart.

    mlflow.start_run(run_id=trainrun.mlflow.run_id())

No other module imports this one; only it imports mlflow.
"""

from __future__ import annotations

import mlflow

from trainrun._process.context import get_context

__all__ = ["run_id"]

TAG = "trainrun"
"""The tag of an MLflow run that holds the run id."""


def run_id() -> str | None:
    """Return the id of this run's MLflow run in the active experiment, creating it if needed.

    Its tag `trainrun` is `trainrun.get_context().run_id`, its name is that of the run. None without
    an agent, so that `mlflow.start_run` creates a new one. Call it on rank 0, before starting an
    MLflow run. Raises ValueError on other ranks: two ranks could create two runs.
    """
    context = get_context()
    if context.rank > 0:
        raise ValueError(
            f"rank {context.rank} must not look up the MLflow run, since only rank 0 creates it; "
            "call this and mlflow.start_run only if trainrun.get_context().rank is 0"
        )
    if not context.run_id:
        return None
    found = mlflow.search_runs(
        filter_string=f"tags.{TAG} = '{context.run_id}'",
        order_by=["attributes.start_time ASC"],
        max_results=1,
        output_format="list",
    )
    if found:
        return str(found[0].info.run_id)
    # Start and end it: only then does MLflow add the user and the source.
    with mlflow.start_run(run_name=context.run, tags={TAG: context.run_id}) as made:
        return str(made.info.run_id)
