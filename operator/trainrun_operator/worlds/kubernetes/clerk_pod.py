"""The pod of a sweep's clerk: our image, with the access to the storage that trials have.

Layer: worlds/kubernetes; pure. It bears the same labels and the same seal as a worker, with the
sweep in the place of the run: so its token is reviewed, and its end is seen, as theirs. Invariant:
it works under the restricted Pod Security profile.
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
"""Of our image; the last has what talks to stores, Optuna, cmaes: no business of the operator."""
USER = 65532
"""Of our image."""
REQUESTS = {"cpu": "50m", "memory": "128Mi"}
LIMITS = {"memory": "1Gi"}
"""Of a clerk whose sweep says nothing: Optuna and some thousand trials take 150 MiB."""
TMP = "/tmp"
"""What Python needs beside a root file system that is read only."""
TMP_VOLUME = "trainrun-tmp"
GONE_AFTER = 10
"""Seconds that it stays on a node that does not answer: the next one is as good."""
_SHARED = ("serviceAccountName", "imagePullSecrets", "nodeSelector", "volumes")
"""What of the trials' pods gives access to the storage, and leads to it."""

Object = dict[str, Any]

_SECURITY: Object = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Where the template does not say otherwise: files of trials belong to its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkImage:
    """What clerks are made from."""

    image: str
    pull_policy: str = "IfNotPresent"


_NO_IMAGE, _NOWHERE = ClerkImage(image=""), OperatorPlace(url="", ca_pem="", signing_key=b"")


def clerk_pod(
    sweep: TrainSweep, *, creation: int, image: ClerkImage, place: OperatorPlace
) -> Object:
    """The pod of a clerk; `creation` counts those of the sweep, from 1."""
    name = f"{sweep.metadata.name}-{names.CLERK}-{creation}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(sweep, name, creation, place),
        "spec": _spec(sweep, image, place),
    }


def clerk_hash(sweep: TrainSweep) -> str:
    """Differs whenever what the sweep says of its clerk makes another pod."""
    text = json.dumps(_spec(sweep, _NO_IMAGE, _NOWHERE), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def resources_of(sweep: TrainSweep) -> dict[str, Object]:
    """Requests and limits: what the sweep names, and of all else ours. A limit of theirs may be
    less than a request of ours, so what is named in one of them is taken from theirs alone."""
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
        # Of those that fit a taint the first one counts, and theirs may tolerate all for ever.
        "tolerations": [
            *(_tolerated(taint) for taint in ("not-ready", "unreachable")),
            *(theirs.get("tolerations") or ()),
        ],
        "containers": [_container(sweep, image, place, volumes)],
        "volumes": volumes,
    }


def next_creation(pods: Collection[PodFact]) -> int:
    """The number of the next one."""
    return 1 + max((pod.creation for pod in pods), default=0)


def _metadata(sweep: TrainSweep, name: str, creation: int, place: OperatorPlace) -> Object:
    labels, signature = marks(
        sweep.metadata, place, name=name, slot=0, creation=creation, made_from=clerk_hash(sweep)
    )
    return {
        "name": name,
        "namespace": sweep.metadata.namespace,
        "labels": {names.SWEEP_LABEL: sweep.metadata.name, **labels},
        "annotations": signature,
        "ownerReferences": [owner_reference(TRAINSWEEP, sweep.metadata)],
    }


def _security(theirs: Object) -> Object:
    security = {**_SECURITY, **theirs}
    if security["runAsUser"] == 0 and "runAsNonRoot" not in theirs:
        del security["runAsNonRoot"]  # the kubelet starts nothing that contradicts itself
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
    """Theirs, as far as the clerk has the volumes: workers have one more, `trainrun`."""
    there = {volume.get("name") for volume in volumes}
    mounts = [mount for mount in theirs.get("volumeMounts") or () if mount.get("name") in there]
    yield from (mount for mount in mounts if not is_mounted_at(mount, names.TOKEN_MOUNT))
    yield {"name": names.TOKEN_VOLUME, "mountPath": names.TOKEN_MOUNT, "readOnly": True}
    if not any(is_mounted_at(mount, TMP) for mount in mounts):
        yield {"name": TMP_VOLUME, "mountPath": TMP}


def _environment(sweep: TrainSweep, theirs: Object, place: OperatorPlace) -> list[Object]:
    """As of the container that trains: what gives it access to the storage may stand there."""
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
