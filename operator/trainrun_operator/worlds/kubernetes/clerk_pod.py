"""The pod of a sweep's clerk: our image, with the same access to the storage as trials.

Layer: worlds/kubernetes; pure. It has the same labels and the same signature as a worker, with the
sweep in place of the run: so its token is reviewed, and its end is observed, like a worker's.
Invariant: it works under the restricted Pod Security profile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from trainrun.contract import variables
from trainrun_operator.api.sweep.spec import TRAINSWEEP, TrainSweep
from trainrun_operator.core.run.config import HASH_DIGITS, storage_config
from trainrun_operator.core.sweep.clerking import ClerkConfig
from trainrun_operator.worlds.kubernetes import names
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact
from trainrun_operator.worlds.kubernetes.render import (
    OperatorPlace,
    environment,
    is_mounted_at,
    marks,
    token_volume,
)
from trainrun_operator.worlds.kubernetes.sweep_objects import owner_reference

PYTHONPATH = "/opt/trainrun/app:/opt/trainrun/site:/opt/trainrun/clerk"
"""Paths in our image; the last holds store clients, Optuna and cmaes, which the operator does not
need."""
USER = 65532
"""The user of our image."""
REQUESTS = {"cpu": "50m", "memory": "128Mi"}
LIMITS = {"memory": "1Gi"}
"""The default limit of a clerk: Optuna and some thousand trials take 150 MiB."""
TMP = "/tmp"
"""A writable folder for Python, since the root file system is read-only."""
TMP_VOLUME = "trainrun-tmp"
GONE_AFTER = 10
"""Seconds that it stays on an unreachable node: a new clerk is as good."""
_SHARED = ("serviceAccountName", "imagePullSecrets", "nodeSelector", "volumes")
"""Fields of the trials' pods that give access to the storage."""
_IDENTITY_LABEL = "azure.workload.identity/use"
"""Label of the trials' pods that does so too: Azure's webhook gives the pod an identity."""

Object = dict[str, Any]

_SECURITY: Object = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Defaults, which the template overrides: files of trials belong to its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkImage:
    """The image of clerks."""

    image: str
    pull_policy: str = "IfNotPresent"


_NO_IMAGE, _NOWHERE = ClerkImage(image=""), OperatorPlace(url="", ca_pem="", signing_key=b"")


def clerk_pod(
    sweep: TrainSweep, *, creation: int, image: ClerkImage, place: OperatorPlace
) -> Object:
    """The pod of a clerk; `creation` numbers the sweep's clerks from 1."""
    name = f"{sweep.metadata.name}-{names.CLERK}-{creation}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(sweep, name, creation, place),
        "spec": _spec(sweep, image, place),
    }


def clerk_hash(sweep: TrainSweep) -> str:
    """A hash that changes whenever the sweep's spec leads to another clerk pod."""
    text = json.dumps(_spec(sweep, _NO_IMAGE, _NOWHERE), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def resources_of(sweep: TrainSweep) -> dict[str, Object]:
    """Requests and limits: the sweep's, else our defaults. A limit of theirs may be lower than our
    request, so a resource that they name in either is taken only from theirs."""
    given = sweep.spec.clerk.resources
    named = {*given.requests, *given.limits}
    return {
        kind: {**{key: value for key, value in ours.items() if key not in named}, **theirs}
        for kind, ours, theirs in (
            ("requests", REQUESTS, given.requests),
            ("limits", LIMITS, given.limits),
        )
    }


def _spec(sweep: TrainSweep, image: ClerkImage, place: OperatorPlace) -> Object:
    theirs = sweep.spec.run.workers.template.as_dict()["spec"]
    shared = {key: value for key, value in theirs.items() if key in _SHARED}
    volumes = [
        *(shared.pop("volumes", None) or ()),
        token_volume(),
        {"name": TMP_VOLUME, "emptyDir": {}},
    ]
    return {
        **shared,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _security(theirs.get("securityContext") or {}),
        # The first toleration that matches a taint counts, and theirs may tolerate all forever.
        "tolerations": [
            *(_tolerated(taint) for taint in ("not-ready", "unreachable")),
            *(theirs.get("tolerations") or ()),
        ],
        "containers": [_container(sweep, image, place, volumes)],
        "volumes": volumes,
    }


def next_creation(pods: Collection[PodFact]) -> int:
    """The number of the next clerk."""
    return 1 + max((pod.creation for pod in pods), default=0)


def _metadata(sweep: TrainSweep, name: str, creation: int, place: OperatorPlace) -> Object:
    labels, signature = marks(
        sweep.metadata, place, name=name, slot=0, creation=creation, made_from=clerk_hash(sweep)
    )
    theirs = sweep.spec.run.workers.template.as_dict().get("metadata") or {}
    given = (theirs.get("labels") or {}).items()
    identity = {label: value for label, value in given if label == _IDENTITY_LABEL}
    return {
        "name": name,
        "namespace": sweep.metadata.namespace,
        "labels": {names.SWEEP_LABEL: sweep.metadata.name, **identity, **labels},
        "annotations": signature,
        "ownerReferences": [owner_reference(TRAINSWEEP, sweep.metadata)],
    }


def _security(theirs: Object) -> Object:
    security = {**_SECURITY, **theirs}
    if security["runAsUser"] == 0 and "runAsNonRoot" not in theirs:
        del security["runAsNonRoot"]  # the kubelet refuses this contradiction
    return security


def _container(
    sweep: TrainSweep, image: ClerkImage, place: OperatorPlace, volumes: list[Object]
) -> Object:
    trains = sweep.spec.run.workers.template.spec.training.name
    template = sweep.spec.run.workers.template.as_dict()
    (theirs,) = (
        container for container in template["spec"]["containers"] if container["name"] == trains
    )
    return {
        "name": names.CLERK,
        "image": image.image,
        "imagePullPolicy": image.pull_policy,
        "command": ["python3", "-m", "trainrun_operator.clerk"],
        "env": _environment(sweep, theirs, place),
        "envFrom": theirs.get("envFrom") or [],
        "resources": resources_of(sweep),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [*_mounts(theirs, volumes)],
    }


def _mounts(theirs: Object, volumes: list[Object]) -> Iterator[Object]:
    """The container's mounts whose volumes the clerk has (workers also have `trainrun`), and
    ours."""
    there = {volume.get("name") for volume in volumes}
    mounts = [mount for mount in theirs.get("volumeMounts") or () if mount.get("name") in there]
    yield from (mount for mount in mounts if not is_mounted_at(mount, names.TOKEN_MOUNT))
    yield {"name": names.TOKEN_VOLUME, "mountPath": names.TOKEN_MOUNT, "readOnly": True}
    if not any(is_mounted_at(mount, TMP) for mount in mounts):
        yield {"name": TMP_VOLUME, "mountPath": TMP}


def _environment(sweep: TrainSweep, theirs: Object, place: OperatorPlace) -> list[Object]:
    """The variables of the training container, which may hold credentials for the storage, and
    ours."""
    config = ClerkConfig(
        sweep=f"{sweep.metadata.namespace}/{sweep.metadata.name}",
        sweep_uid=sweep.metadata.uid,
        storage=storage_config(sweep.spec.storage, sweep.sweep_name),
        operator_url=place.url,
        ca=place.ca_pem,
        token_file=names.TOKEN_FILE,
    )
    # The kubelet reads "$(NAME)" as a reference, and "$$" as one dollar.
    ours: list[Object] = [
        {"name": variables.CLERK_CONFIG, "value": config.to_json().replace("$", "$$")},
        {"name": "PYTHONPATH", "value": PYTHONPATH},
    ]
    return environment(ours, theirs, sweep.spec.storage, without=("PATH", "PYTHONHOME"))


def _tolerated(taint: str) -> Object:
    return {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": GONE_AFTER,
    }
