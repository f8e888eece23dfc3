"""A worker's pod, reduced to some twenty fields of a few kilobytes.

Layer: worlds/kubernetes; pure. A pod without the labels of a worker gives no PodFact. Labels alone
prove nothing, since every user who may create pods can write them: a signature proves that this
installation of the operator created the pod for its run. The key never leaves the operator's own
Secret. A signature can be copied within its namespace, onto a pod of the same name: the trust
boundary is the namespace.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from trainrun.contract import variables, wire
from trainrun.contract.agent_config import StorageConfig
from trainrun_operator.api.pod_template import DEFAULT_GRACE
from trainrun_operator.core.run.gang.avoiding import MOST
from trainrun_operator.kube.raw import (
    controller,
    count,
    mapping,
    moment,
    number,
    objects,
    text,
    words,
)
from trainrun_operator.worlds.kubernetes.names import (
    AVOIDS_ANNOTATION,
    CREATION_LABEL,
    RUN_UID_LABEL,
    SIGNATURE_ANNOTATION,
    SLOT_LABEL,
    TEMPLATE_HASH_LABEL,
)
from trainrun_operator.worlds.kubernetes.observing.nodes import Toleration

MOST_ENTRIES = 256
"""Most containers and tolerations of a pod that are read: no usable pod has more."""

LONGEST_CONFIG = 64 * 1024
"""Most characters of an agent's configuration: no operator writes a longer one."""

MOST_GATES = 4
"""Most scheduling gates that are read."""

ContainerState = Literal["Waiting", "Running", "Terminated"]

_STATES: tuple[tuple[str, ContainerState], ...] = (
    ("terminated", "Terminated"),
    ("running", "Running"),
)
ENDED = ("Succeeded", "Failed")
"""Phases of pods that hold no resources: they are kept for their logs."""
_PURPOSE = "trainrun pod signature v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFact:
    """One container as the kubelet sees it."""

    name: str
    init: bool = False
    state: ContainerState = "Waiting"
    reason: str = ""
    message: str = ""
    """Of a Terminated one: what it wrote to its termination log."""
    exit_code: int | None = None
    finished: datetime | None = None
    """On the node's clock."""
    restarts: int = 0
    """By the kubelet, in this pod."""
    ended_before: str = ""
    """Reason why the previous instance of the container ended."""
    code_before: int | None = None
    """Exit code of that instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCondition:
    """One condition of a pod."""

    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """A pod that claims by its labels to be a worker; `is_ours` checks that."""

    namespace: str
    name: str
    uid: str
    run_uid: str
    slot: int
    creation: int
    template_hash: str = ""
    storage: StorageConfig | None = None
    """The storage in its agent's configuration; None if that cannot be read."""
    signature: str = ""
    owner_uid: str = ""
    """Uid of its controller."""
    training: str = ""
    """Name of the training container: the one with an agent."""
    probes: str = ""
    """Probes of that container whose failure ends it: `livenessProbe or startupProbe`."""
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    """Why the kubelet ended or refused the pod as a whole."""
    node: str = ""
    avoids: tuple[str, ...] = ()
    """Nodes that it must avoid."""
    created: datetime
    deletion: datetime | None = None
    """When the grace of its deletion ends."""
    grace: int | None = None
    """Seconds of that grace."""
    usual_grace: int = DEFAULT_GRACE
    """Seconds of grace of a deletion that names none."""
    gates: tuple[str, ...] = ()
    """Names of its scheduling gates; TrainRun sets none."""
    scheduler: str = ""
    """Name of the scheduler that must place it."""
    scheduled: PodCondition | None = None
    disruption: PodCondition | None = None
    """DisruptionTarget: it is being taken away."""
    sandbox: PodCondition | None = None
    """PodReadyToStartContainers: volumes and network are ready."""
    containers: tuple[ContainerFact, ...] = ()
    """Init containers first."""
    tolerations: tuple[Toleration, ...] = ()

    def as_foreign(self) -> PodFact:
        """The pod without the fields that a foreign creator could choose freely."""
        return replace(
            self,
            storage=None,
            signature="",
            training="",
            reason="",
            message="",
            avoids=(),
            scheduled=None,
            disruption=None,
            sandbox=None,
            containers=(),
            tolerations=(),
        )

    def container(self, name: str) -> ContainerFact | None:
        """The (main) container of this name; None until the kubelet reports it."""
        return next((c for c in self.containers if c.name == name and not c.init), None)


def usual_grace(spec: Mapping[str, Any]) -> int:
    """Seconds of grace of a pod, or of a template's pods, for a deletion that names none."""
    found = number(spec, "terminationGracePeriodSeconds")
    return DEFAULT_GRACE if found is None else found


def pod_fact(raw: Mapping[str, Any]) -> PodFact | None:
    """The worker's pod for this object of the API server; None where it is not a worker's."""
    metadata, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    labels, annotations = mapping(metadata, "labels"), mapping(metadata, "annotations")
    slot, creation = count(labels, SLOT_LABEL), count(labels, CREATION_LABEL)
    run_uid, created = text(labels, RUN_UID_LABEL), moment(metadata, "creationTimestamp")
    if slot is None or creation is None or not run_uid:
        return None
    training, agent, probes = _training(spec)
    return PodFact(
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        run_uid=run_uid,
        slot=slot,
        creation=creation,
        template_hash=text(labels, TEMPLATE_HASH_LABEL),
        storage=_storage(agent),
        signature=text(annotations, SIGNATURE_ANNOTATION),
        owner_uid=controller(metadata),
        training=training,
        probes=probes,
        phase=text(status, "phase") or "Pending",
        reason=text(status, "reason"),
        message=text(status, "message"),
        node=text(spec, "nodeName"),
        avoids=words(annotations, AVOIDS_ANNOTATION, most=MOST),
        created=created or datetime.fromtimestamp(0, tz=UTC),
        deletion=moment(metadata, "deletionTimestamp"),
        grace=number(metadata, "deletionGracePeriodSeconds"),
        usual_grace=usual_grace(spec),
        gates=tuple(text(gate, "name") for gate in objects(spec, "schedulingGates")[:MOST_GATES]),
        scheduler=text(spec, "schedulerName"),
        scheduled=_condition(status, "PodScheduled"),
        disruption=_condition(status, "DisruptionTarget"),
        sandbox=_condition(status, "PodReadyToStartContainers"),
        containers=(
            *_containers(status, "initContainerStatuses", init=True),
            *_containers(status, "containerStatuses", init=False),
        ),
        tolerations=tuple(
            _toleration(entry) for entry in objects(spec, "tolerations")[:MOST_ENTRIES]
        ),
    )


def _training(spec: Mapping[str, Any]) -> tuple[str, object, str]:
    """Name of the container with an agent, the agent's raw configuration, and its probes."""
    for container in objects(spec, "containers"):
        for entry in objects(container, "env"):
            if entry.get("name") == variables.AGENT_CONFIG:
                probes = (name for name in ("livenessProbe", "startupProbe") if name in container)
                return text(container, "name"), entry.get("value"), " or ".join(probes)
    return "", None, ""


def _storage(raw: object) -> StorageConfig | None:
    if not isinstance(raw, str) or len(raw) > LONGEST_CONFIG:
        return None
    try:
        config: Any = wire.parsed(raw.replace("$$", "$"))  # see `render`
        return wire.decode(StorageConfig, mapping(config, "storage"))
    except wire.MalformedMessage:
        return None


def _condition(status: Mapping[str, Any], kind: str) -> PodCondition | None:
    for condition in objects(status, "conditions"):
        if condition.get("type") == kind:
            return PodCondition(
                status=text(condition, "status"),
                reason=text(condition, "reason"),
                message=text(condition, "message"),
                since=moment(condition, "lastTransitionTime"),
            )
    return None


def _containers(status: Mapping[str, Any], key: str, *, init: bool) -> tuple[ContainerFact, ...]:
    return tuple(_container(entry, init=init) for entry in objects(status, key)[:MOST_ENTRIES])


def _container(entry: Mapping[str, Any], *, init: bool) -> ContainerFact:
    state = mapping(entry, "state")
    name, kind = next(
        ((key, kind) for key, kind in _STATES if key in state), ("waiting", "Waiting")
    )
    detail, before = mapping(state, name), mapping(mapping(entry, "lastState"), "terminated")
    return ContainerFact(
        name=text(entry, "name"),
        init=init,
        state=kind,
        reason=text(detail, "reason"),
        message=text(detail, "message"),
        exit_code=number(detail, "exitCode"),
        finished=moment(detail, "finishedAt"),
        restarts=number(entry, "restartCount") or 0,
        ended_before=text(before, "reason"),
        code_before=number(before, "exitCode"),
    )


def _toleration(entry: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=text(entry, "key"),
        exists=entry.get("operator") == "Exists",
        value=text(entry, "value"),
        effect=text(entry, "effect"),
        seconds=number(entry, "tolerationSeconds"),
    )


def key_id(key: bytes) -> str:
    """Distinguishes keys (8 hexadecimal digits); it is not a secret."""
    return hmac.new(key, b"trainrun key id", hashlib.sha256).hexdigest()[:8]


@functools.lru_cache(maxsize=4096)  # each pass over a run checks each of its pods
def signature_of(
    key: bytes,
    *,
    namespace: str,
    name: str,
    run_uid: str,
    slot: int,
    creation: int,
    template_hash: str,
) -> str:
    """The signature (64 hexadecimal digits) of the pod with these fields."""
    # JSON keeps the parts apart: no two different pods make the same text.
    signed = json.dumps([_PURPOSE, namespace, name, run_uid, slot, creation, template_hash])
    return hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()


def is_ours(pod: PodFact, run_uid: str, signing_key: bytes) -> bool:
    """Whether an operator of this installation created the pod for this run."""
    if not run_uid or pod.run_uid != run_uid or pod.owner_uid != run_uid:
        return False
    expected = signature_of(
        signing_key,
        namespace=pod.namespace,
        name=pod.name,
        run_uid=run_uid,
        slot=pod.slot,
        creation=pod.creation,
        template_hash=pod.template_hash,
    )
    return hmac.compare_digest(expected.encode(), pod.signature.encode())
