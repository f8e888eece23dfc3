"""A namespace of a cluster with everything that a test needs: scripts, credentials, a bucket.

The test sees what a user sees: objects, status, events, logs, and what lies in the store.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import yaml

from tests.cluster.cluster import Cluster

SCRIPTS = Path(__file__).parents[1] / "scripts"
PYTHON_IMAGE = "docker.io/trainrun/python:dev"
"""Debian's Python and nothing of ours: the agent is injected."""
WORKER_IMAGE = "docker.io/trainrun/worker:dev"
"""PyTorch and our package."""

Json = dict[str, Any]


class Bed:
    """One namespace, made for one test."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.bucket = namespace
        cluster.s3.make_bucket(self.bucket)
        self._apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "storage", "namespace": namespace},
                "stringData": {
                    "AWS_ACCESS_KEY_ID": cluster.s3.access_key,
                    "AWS_SECRET_ACCESS_KEY": cluster.s3.secret_key,
                },
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "scripts", "namespace": namespace},
                "data": {path.name: path.read_text() for path in SCRIPTS.glob("*.py")},
            },
        )

    def kubectl(self, *args: str, text: str = "") -> str:
        """Run kubectl in this namespace."""
        return self.cluster.kubectl("--namespace", self.namespace, *args, text=text)

    def json(self, *args: str) -> Json:
        """What `kubectl get ... -o json` says."""
        found: Json = json.loads(self.kubectl("get", *args, "--output", "json"))
        return found

    def _apply(self, *objects: Mapping[str, Any]) -> None:
        self.kubectl("apply", "--filename", "-", text=yaml.safe_dump_all(objects))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """`kubectl apply` these objects."""
        self._apply(*objects)

    def run(self, name: str = "run", **options: Any) -> ClusterRun:
        """Apply a TrainRun; see `trainrun` for the options."""
        self._apply(self.trainrun(name, **options))
        return ClusterRun(self, name)

    def trainrun(
        self,
        name: str = "run",
        *,
        script: str = "counting.py",
        args: Sequence[object] = (),
        replicas: int = 3,
        image: str = PYTHON_IMAGE,
        gpus: int = 1,
        container: Mapping[str, Any] | None = None,
        pod: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Json:
        """A TrainRun; `container`, `pod` and `spec` are laid over what stands here."""
        worker = {
            "name": "worker",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", f"/scripts/{script}", *(str(arg) for arg in args)],
            "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
            **(container or {}),
        }
        template = {
            "spec": {
                "containers": [worker],
                "terminationGracePeriodSeconds": 10,
                "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}],
                **(pod or {}),
            }
        }
        workers: Json = {"replicas": replicas, "template": template}
        if image == WORKER_IMAGE:
            workers["agent"] = "InImage"
        storage = {
            "uri": f"s3://{self.bucket}/runs",
            "endpointUrl": self.cluster.s3.endpoint,
            "region": "us-east-1",
            "credentialsSecret": "storage",
            **spec.pop("storage", {}),
        }
        return {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "workers": {**workers, **spec.pop("workers", {})},
                "storage": storage,
                "failurePolicy": {"maxFailures": 3, "backoff": {"initial": "0s"}},
                "health": {"heartbeatTimeout": "5s"},
                **spec,
            },
        }

    def remove(self) -> None:
        """Delete the namespace, without waiting for its end."""
        self.kubectl("delete", "trainruns", "--all", "--wait=false", "--ignore-not-found")
        self.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")


class ClusterRun:
    """A TrainRun that was applied."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.bed = bed
        self.name = name

    # ------------------------------------------------------------------------ what it says

    @property
    def status(self) -> Json:
        """status, empty while there is none."""
        found: Json = self.bed.json("trainrun", self.name).get("status", {})
        return found

    @property
    def incidents(self) -> list[Json]:
        """Settled incidents, oldest first."""
        return list(self.status.get("incidents", []))

    @property
    def causes(self) -> list[str]:
        """Their causes."""
        return [incident["cause"] for incident in self.incidents]

    def condition(self, kind: str) -> Json:
        """The condition of this type; empty where there is none."""
        conditions = self.status.get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of the TrainRun's events, oldest first."""
        items = self.bed.json("events", f"--field-selector=involvedObject.name={self.name}")
        ordered = sorted(items["items"], key=lambda e: (e["firstTimestamp"], e["metadata"]["name"]))
        return [(event["reason"], event["message"]) for event in ordered]

    def reasons(self) -> list[str]:
        """Reasons of its events."""
        return [reason for reason, _ in self.events()]

    def pods(self) -> list[Json]:
        """All pods of the run, whatever their state."""
        found = self.bed.json("pods", f"--selector=trainrun.dev/run={self.name}")
        return list(found["items"])

    def pod(self, slot: int) -> Json:
        """The pod of a slot in the newest start record."""
        creation = self.status["startRecord"]["roster"][slot]
        return self.bed.json("pod", f"{self.name}-{slot}-{creation}")

    def log(self, pod: str) -> str:
        """What a pod's worker container printed."""
        return self.bed.kubectl("logs", pod, "--container", "worker")

    def describe(self) -> str:
        """What `kubectl describe` shows."""
        return self.bed.kubectl("describe", "trainrun", self.name)

    # ------------------------------------------------------------------------------ waiting

    def wait(self, what: str, until: Callable[[Json], object], *, seconds: float = 60.0) -> Json:
        """Wait until `until(status)` is true; returns that status."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status
            if until(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:.0f} s for {what}\n{self.story()}")
            time.sleep(0.3)

    def wait_for_phase(self, *phases: str, seconds: float = 60.0) -> Json:
        """Wait for one of these phases; a run that fails meanwhile ends the wait."""
        ends = {*phases, "Failed", "Succeeded"}
        status = self.wait(f"phase {phases}", lambda s: s.get("phase") in ends, seconds=seconds)
        assert status["phase"] in phases, f"{status['phase']} instead of {phases}\n{self.story()}"
        return status

    def wait_for_checkpoint(self, step: int = 1, *, seconds: float = 60.0) -> Json:
        """Wait until a checkpoint of this step or a later one is committed."""
        # The status shows it lazily; the store knows it at once.
        deadline = time.monotonic() + seconds
        while (newest := self.newest_step()) is None or newest < step:
            if time.monotonic() > deadline:
                raise AssertionError(f"no checkpoint of step {step}\n{self.story()}")
            time.sleep(0.2)
        return self.status

    def wait_for_attempt(self, attempt: int, *, seconds: float = 60.0) -> Json:
        """Wait until this attempt, or a later one, runs."""
        return self.wait(
            f"attempt {attempt}",
            lambda s: (
                s.get("attempt", 0) >= attempt
                and s.get("startRecord") is not None
                and s.get("ending") is None
            ),
            seconds=seconds,
        )

    def story(self) -> str:
        """Everything there is to know, for a test that failed."""
        pods = self.bed.kubectl("get", "pods", "--output", "wide")
        logs = [
            f"--- {pod['metadata']['name']}\n{self._tail(pod['metadata']['name'])}"
            for pod in self.pods()
        ]
        operator = self.bed.cluster.kubectl(
            "--namespace=trainrun-system",
            "logs",
            "--selector=app.kubernetes.io/name=trainrun",
            "--tail=40",
            "--prefix",
        )
        return "\n".join([self.describe(), pods, *logs, "--- operator", operator])

    def _tail(self, pod: str) -> str:
        try:
            return self.bed.kubectl("logs", pod, "--container", "worker", "--tail=15")
        except Exception as error:  # noqa: BLE001 - a pod that never started has no log
            return str(error)

    # ------------------------------------------------------------------------------ doing

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Merge into the spec."""
        body = json.dumps({"spec": spec})
        self.bed.kubectl("patch", "trainrun", self.name, "--type=merge", f"--patch={body}")

    def delete(self, *, wait: bool = True) -> None:
        """`kubectl delete`."""
        self.bed.kubectl("delete", "trainrun", self.name, f"--wait={str(wait).lower()}")

    # --------------------------------------------------------------------------- the store

    def newest_step(self) -> int | None:
        """The step of the newest committed checkpoint in the store."""
        names = [key.split("/")[-2] for key in self._keys() if key.endswith("/manifest.json")]
        return max((int(name.split("-")[1]) for name in names), default=None)

    def chains(self, step: int) -> list[str]:
        """What each rank of counting.py had learned at this step, as it lies in the store."""
        keys = [k for k in self._keys() if f"/step-{step:09d}-" in k and "/rank-" in k]
        ranks = {}
        for key in keys:
            body = self._s3.get_object(Bucket=self.bed.bucket, Key=key)["Body"].read()
            ranks[int(key.rpartition("/rank-")[2].removesuffix(".json"))] = json.loads(body)[
                "chain"
            ]
        return [ranks[rank] for rank in sorted(ranks)]

    def _keys(self) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bed.bucket, Prefix=f"runs/{self.name}/"
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    @property
    def _s3(self) -> Any:
        s3 = self.bed.cluster.s3
        return boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name="us-east-1",
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
        )


def undisturbed(*, ranks: int, steps: int) -> list[str]:
    """What each rank of counting.py must have learned in the end."""
    chains = []
    for rank in range(ranks):
        chain = ""
        for step in range(1, steps + 1):
            chain = hashlib.sha256(f"{chain} {rank} {step}".encode()).hexdigest()
        chains.append(chain)
    return chains


@contextmanager
def a_bed(cluster: Cluster, namespace: str) -> Iterator[Bed]:
    """A namespace that is removed in the end."""
    bed = Bed(cluster, namespace)
    try:
        yield bed
    finally:
        bed.remove()
