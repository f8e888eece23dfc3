"""Find the MLflow run of this run again after a restart.

    mlflow.start_run(run_id=trainrun.mlflow.run_id())

Nothing else imports this, and this is the only part that imports mlflow.
"""

from __future__ import annotations

import mlflow

from trainrun._process.context import get_context

__all__ = ["run_id"]

TAG = "trainrun"
"""The tag of an MLflow run that holds the run id."""


def run_id() -> str | None:
    """Return the id of this run's MLflow run in the active experiment; it is created where there is
    none yet.

    Its tag `trainrun` is `trainrun.get_context().run_id`, its name that of the run. None without an
    agent, so that `mlflow.start_run` makes a new one. To be called by rank 0, before it starts an
    MLflow run: raises ValueError on other ranks, two of which might create two.
    """
    context = get_context()
    if context.rank > 0:
        raise ValueError(
            f"rank {context.rank} may not look for the MLflow run: only rank 0 creates it; call "
            "this and mlflow.start_run where trainrun.get_context().rank is 0"
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
    # Started and ended, since only that way MLflow adds what it knows of the user and the source.
    with mlflow.start_run(run_name=context.run, tags={TAG: context.run_id}) as made:
        return str(made.info.run_id)
