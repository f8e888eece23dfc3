"""A TrainSweep as the API server holds it."""

from __future__ import annotations

from typing import Any

from trainrun_operator.api.loading import read
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.worlds.kubernetes.render import OperatorPlace

PLACE = OperatorPlace(url="https://operator:8443", ca_pem="PEM", signing_key=b"key")


def a_sweep(*, pod: dict[str, Any] | None = None, **spec: Any) -> TrainSweep:
    return read(a_document(pod=pod, **spec), TRAINSWEEP, source="team/search")


def a_document(*, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": "train",
        "command": ["python3", "train.py", "--lr=$(TRAINRUN_PARAM_LR)"],
        "env": [{"name": "AWS_PROFILE", "value": "team"}, {"name": "PYTHONPATH", "value": "/mine"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    template = {"containers": [container], "serviceAccountName": "trainer", **(pod or {})}
    return {
        **TRAINSWEEP.head(),
        "metadata": {"name": "search", "namespace": "team", "uid": "uid-1"},
        "spec": {
            "storage": {
                "uri": "s3://bucket/sweeps",
                "credentialsSecretRef": {"name": "keys"},
            },
            "objective": {"metric": "loss", "goal": "minimize"},
            "space": [{"name": "lr", "float": {"low": 0.001, "high": 0.1}}],
            "budget": {"trials": 4},
            "run": {"workers": {"replicas": 2, "template": {"spec": template}}},
            **spec,
        },
    }
