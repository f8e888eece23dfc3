"""The row of TrainSweep.

Layer: api.
"""

from __future__ import annotations

from trainrun_operator.api.resources import Column, Resource
from trainrun_operator.api.sweep.spec import MAX_SWEEP_NAME, TrainSweep
from trainrun_operator.api.sweep.status import TrainSweepStatus

TRAINSWEEP = Resource(
    kind="TrainSweep",
    plural="trainsweeps",
    short_names=("ts",),
    model=TrainSweep,
    status=TrainSweepStatus,
    max_name=MAX_SWEEP_NAME,
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Done", "string", ".status.trials.text"),
        Column("Open", "integer", ".status.trials.open"),
        Column("Best", "string", ".status.best.text"),
        Column("Best trial", "integer", ".status.best.trial"),
        Column("Errored", "integer", ".status.trials.errored"),
        Column("Reason", "string", ".status.reason"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    scale={"specReplicasPath": ".spec.clerk.replicas", "statusReplicasPath": ".status.clerks"},
    verbs=("get", "list", "watch"),
)
