"""Renders the manifest of a worker pod from a TrainRun.

Layer: worlds/kubernetes; pure. The user's template is kept whole; additions are what the agent
needs, and work under the restricted Pod Security profile wherever the template itself does. The
node affinity excludes some nodes, or prefers others to them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from trainrun.contract import variables
from trainrun.contract.staged_parts import NodeCertificate
from trainrun_operator.api.resources import TRAINRUN, ObjectMeta, TrainRun
from trainrun_operator.api.run.spec import StorageSpec
from trainrun_operator.api.sweep.spec import SweepStorage
from trainrun_operator.core.run.boundary import CreateWorker
from trainrun_operator.core.run.config import RunConfig, agent_config
from trainrun_operator.core.sweep.config import METRICS_INTERVAL
from trainrun_operator.worlds.kubernetes import names
from trainrun_operator.worlds.kubernetes.observing.pods import signature_of, usual_grace
from trainrun_operator.worlds.kubernetes.sweep_objects import owner_reference

Object = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

WEIGHT = 100
"""The maximum. The scheduler adds it to its score for free room and the template's preferences."""

TOKEN_SECONDS = 3600
"""Lifetime of an agent's token; the kubelet renews it after four fifths of it."""

_OPTIONAL: Object = {"optional": True}
SECRET_KEYS: dict[str, tuple[tuple[str, Object], ...]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", {}),
        ("AWS_SECRET_ACCESS_KEY", {}),
        ("AWS_SESSION_TOKEN", _OPTIONAL),
    ),
    "gs": (("GOOGLE_SERVICE_ACCOUNT_KEY", {}),),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_NAME", {}),
        ("AZURE_STORAGE_ACCOUNT_KEY", _OPTIONAL),
        ("AZURE_STORAGE_SAS_TOKEN", _OPTIONAL),
    ),
}
"""Keys of storage.credentialsSecretRef that become variables, by the scheme of storage.uri, and
whether each is optional."""

FETCH = Path(__file__).with_name("fetch.py").read_text()
"""The program that brings the agent into the container."""

_PYTHON = re.compile(r"python(3(\.\d+)?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlace:
    """The operator's addresses and keys, which go into every pod."""

    url: str
    """`https://<service>.<namespace>.svc:<port>`."""
    operators: Callable[[], tuple[str, ...]] = tuple
    """The current addresses of all operators, `address:port`."""
    ca_pem: str
    """Certificates with which agents verify the operator."""
    signing_key: bytes
    certify: Callable[[str], NodeCertificate | None] = lambda _uid: None
    """Returns with what the agents of the run with this uid serve other nodes."""


def worker_pod(
    run: TrainRun,
    config: RunConfig,
    raw_template: Mapping[str, Any],
    action: CreateWorker,
    place: OperatorPlace,
) -> Object:
    """The pod of this worker, ready to create; `config` is the run's, `raw_template` the template
    as its user wrote it."""
    template: Object = copy.deepcopy(dict(raw_template))
    spec: Object = template["spec"]
    container = _training_container(run, spec)
    for key in ("restartPolicy", "restartPolicyRules"):
        container.pop(key, None)  # a container that restarts in its pod is not the same worker
    _command_through_agent(run, container)
    _mount(container, names.VOLUME, names.MOUNT)
    _mount(container, names.TOKEN_VOLUME, names.TOKEN_MOUNT, readOnly=True)
    agent = _config(run, config, action, place, grace=usual_grace(spec))
    _add_environment(container, run, agent)
    _add_volumes(spec)
    keep_away(spec, action.avoid)
    prefer_other_nodes(spec, action.disfavor)
    spec["restartPolicy"] = "Never"
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        # Else the pod uses the node's DNS, which knows no Service, neither ours nor the user's.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(run, template.get("metadata") or {}, action, place),
        "spec": spec,
    }


def _training_container(run: TrainRun, spec: Object) -> Object:
    name = run.spec.workers.template.spec.training.name
    containers: list[Object] = spec["containers"]
    return next(container for container in containers if container["name"] == name)


def _metadata(
    run: TrainRun, given: Mapping[str, Any], action: CreateWorker, place: OperatorPlace
) -> Object:
    labels, signature = marks(
        run.metadata,
        place,
        name=action.name,
        slot=action.slot,
        creation=action.created_for,
        made_from=action.template_hash,
    )
    own = {names.RUN_LABEL: run.metadata.name, **labels}
    metadata: Object = {
        "name": action.name,
        "namespace": run.metadata.namespace,
        "labels": {**(given.get("labels") or {}), **own},
        "annotations": {
            # The default container of `kubectl logs` and `kubectl exec`.
            names.DEFAULT_CONTAINER_ANNOTATION: run.spec.workers.template.spec.training.name,
            # Autoscalers must not move a training pod; a template may override this.
            **names.STAYS,
            **(given.get("annotations") or {}),
            **signature,
        },
        "ownerReferences": [owner_reference(TRAINRUN, run.metadata)],
    }
    if action.avoid:
        metadata["annotations"][names.AVOIDS_ANNOTATION] = ",".join(action.avoid)
    if given.get("finalizers"):
        metadata["finalizers"] = given["finalizers"]
    return metadata


def marks(
    owner: ObjectMeta, place: OperatorPlace, *, name: str, slot: int, creation: int, made_from: str
) -> tuple[Object, Object]:
    """Labels and annotations by which an operator recognizes a pod that it made for this owner."""
    signature = signature_of(
        place.signing_key,
        namespace=owner.namespace,
        name=name,
        run_uid=owner.uid,
        slot=slot,
        creation=creation,
        template_hash=made_from,
    )
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.RUN_UID_LABEL: owner.uid,
        names.SLOT_LABEL: str(slot),
        names.CREATION_LABEL: str(creation),
        names.TEMPLATE_HASH_LABEL: made_from,
    }
    return labels, {names.SIGNATURE_ANNOTATION: signature}


# --------------------------------------------------------------------------- the training container


def _command_through_agent(run: TrainRun, container: Object) -> None:
    """The agent becomes the container's process; the training command follows after `--`."""
    words = [*(container.get("command") or ()), *(container.pop("args", None) or ())]
    named = _PYTHON.fullmatch(PurePosixPath(words[0]).name)
    # The script's own interpreter must exist; any other program says nothing about Python.
    python = words[0] if named else "python3"
    inject = run.spec.workers.agent == "Inject"
    agent = ["-I", "-S", "-c", FETCH] if inject else ["-m", "trainrun.agent"]
    container["command"] = [python, *agent, "--", *words]


def _config(
    run: TrainRun, config: RunConfig, action: CreateWorker, place: OperatorPlace, *, grace: int
) -> str:
    agent = agent_config(run, config)
    if names.SWEEP_UID_LABEL in run.metadata.labels:
        agent = replace(agent, metrics_interval=METRICS_INTERVAL)
    agent = replace(
        agent,
        slot=action.slot,
        worker=action.name,
        created_for=action.created_for,
        operator_url=place.url,
        operators=place.operators(),
        ca=place.ca_pem,
        token_file=names.TOKEN_FILE,
        directory=names.WORK_FOLDER,
        cache=names.CACHE_FOLDER,
        grace_seconds=float(grace),
    )
    # The kubelet reads "$(NAME)" as a reference, and "$$" as one dollar.
    return agent.to_json().replace("$", "$$")


def _add_environment(container: Object, run: TrainRun, config: str) -> None:
    """Put our variables first, so that the user's can refer to them; ours override the user's."""
    ours: list[Object] = [
        {"name": variables.AGENT_CONFIG, "value": config},
        _from_field(variables.POD_IP, "status.podIP"),
        _from_field(variables.NODE_NAME, "spec.nodeName"),
    ]
    container["env"] = environment(ours, container, run.spec.storage)


def environment(
    ours: list[Object],
    container: Object,
    storage: StorageSpec | SweepStorage,
    *,
    without: Collection[str] = (),
) -> list[Object]:
    """Our variables and the storage's keys, then the container's variables that are neither in
    `without` nor among ours."""
    if (secret := storage.credentials_secret_ref) is not None:
        # A folder needs none; initial weights may be in a bucket of S3.
        keys = SECRET_KEYS.get(storage.uri.partition("://")[0], SECRET_KEYS["s3"])
        ours = [*ours, *(_from_secret(secret.name, *key) for key in keys)]
    taken = {*without, *(entry["name"] for entry in ours)}
    theirs = (entry for entry in container.get("env") or () if entry.get("name") not in taken)
    return [*ours, *theirs]


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _from_secret(secret: str, key: str, optional: Object) -> Object:
    return {"name": key, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **optional}}}


def is_mounted_at(mount: Object, path: str) -> bool:
    """Whether the mount has this path in the container, in any spelling."""
    theirs = str(mount.get("mountPath"))
    # The kubelet starts at the root, even without a leading slash.
    return normpath("/" + theirs.lstrip("/")) == path


def _mount(container: Object, volume: str, path: str, **more: Any) -> None:
    mounts = [m for m in container.get("volumeMounts") or () if not is_mounted_at(m, path)]
    container["volumeMounts"] = [*mounts, {"name": volume, "mountPath": path, **more}]


# ------------------------------------------------------------------------------------------ volumes


def _add_volumes(spec: Object) -> None:
    """A user's volume named `trainrun` replaces our emptyDir.

    So staging and downloads can use a faster or a larger disk.
    """
    volumes: list[Object] = list(spec.get("volumes") or ())
    if not any(volume.get("name") == names.VOLUME for volume in volumes):
        volumes.append({"name": names.VOLUME, "emptyDir": {}})
    volumes.append(token_volume())
    spec["volumes"] = volumes


def token_volume() -> Object:
    """The volume of the token with which a pod authenticates to the operator."""
    token = {
        "audience": names.AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
        "path": names.TOKEN_NAME,
    }
    return {
        "name": names.TOKEN_VOLUME,
        "projected": {"sources": [{"serviceAccountToken": token}]},
    }


# -------------------------------------------------------------------------------------- which nodes


def keep_away(spec: Object, nodes: Sequence[str]) -> None:
    """Exclude `nodes` (names) in the pod's spec."""
    if not nodes:
        return
    of_nodes = _node_affinity(spec)
    required = of_nodes.get(REQUIRED) or {}
    # A node needs to match only one term, so each of the user's terms must exclude the nodes.
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *_none_of(nodes)]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    of_nodes[REQUIRED] = {**required, "nodeSelectorTerms": terms}


def prefer_other_nodes(spec: Object, nodes: Sequence[str]) -> None:
    """Prefer other nodes than `nodes` (names) in the pod's spec."""
    if not nodes:
        return
    of_nodes = _node_affinity(spec)
    ours = {"weight": WEIGHT, "preference": {"matchFields": _none_of(nodes)}}
    of_nodes[PREFERRED] = [*(of_nodes.get(PREFERRED) or ()), ours]


def _node_affinity(spec: Object) -> Object:
    """A copy of the node affinity that may be changed; the template's stays unchanged."""
    affinity = spec["affinity"] = {**(spec.get("affinity") or {})}
    of_nodes: Object = {**(affinity.get("nodeAffinity") or {})}
    affinity["nodeAffinity"] = of_nodes
    return of_nodes


def _none_of(nodes: Sequence[str]) -> list[Object]:
    # By name, since labels may be missing or shared; each requirement takes a single value.
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
