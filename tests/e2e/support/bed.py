"""A namespace of a cluster with everything that a test needs: scripts, credentials, a bucket.

The test sees what a user sees: objects, status, events, logs, and what lies in the store.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import yaml

from testbed.cluster import Cluster
from testbed.errors import ClusterBroken
from testbed.images import base_name
from testbed.project_images import WORKER
from testbed.s3 import S3
from tests.e2e.support.cluster_run import ClusterRun

SCRIPTS = (
    *Path(__file__).parents[1].joinpath("scripts").glob("*.py"),
    *Path(__file__).parents[2].joinpath("support", "lean_torch").glob("*.py"),
)
"""What each namespace has in one folder."""
PYTHON_IMAGE = base_name("python")
"""Debian's Python and nothing of ours: the agent is injected."""
TORCH_IMAGE = base_name("torch")
"""Debian's PyTorch, boto3 too, and nothing of ours."""
WORKER_IMAGE = WORKER.name
"""PyTorch and our package."""

Json = dict[str, Any]


class Bed:
    """One namespace, made for one test."""

    def __init__(self, cluster: Cluster, namespace: str, *, store: S3 | None = None) -> None:
        """`store` holds its bucket: the cluster's own, unless told otherwise."""
        self.cluster = cluster
        self.namespace = namespace
        self.bucket = namespace
        self.store = store or cluster.s3
        self.api = cluster.api
        self.store.make_bucket(self.bucket)
        self._apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "storage", "namespace": namespace},
                "stringData": self.credentials,
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "scripts", "namespace": namespace},
                "data": {path.name: path.read_text() for path in SCRIPTS},
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
            "endpointURL": self.store.endpoint,
            "region": "us-east-1",
            "credentialsSecretRef": {"name": "storage"},
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

    @property
    def credentials(self) -> dict[str, str]:
        """Variables with the keys of the store."""
        s3 = self.store
        return {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}

    @cached_property
    def s3(self) -> Any:
        """A client of the store, with its keys; to make one takes longer than a call of it."""
        s3 = self.store
        return boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name="us-east-1",
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
        )

    def story(self) -> str:
        """Everything there is to know about the runs, for a test that failed."""
        described = self.kubectl("describe", "trainruns")
        pods = self.kubectl("get", "pods", "--output", "wide")
        names = self.kubectl("get", "pods", "--output", "name").split()
        logs = [f"--- {name}\n{self._tail(self.namespace, name, 15)}" for name in names]
        operators = self.cluster.kubectl(
            "--namespace=trainrun-system",
            "get",
            "pods",
            "--selector=app.kubernetes.io/name=trainrun",
            "--output",
            "name",
        ).split()
        logs += [f"--- {name}\n{self._tail('trainrun-system', name, 40)}" for name in operators]
        return "\n".join([described, pods, *logs])

    def _tail(self, namespace: str, pod: str, lines: int) -> str:
        try:
            return self.cluster.kubectl(f"--namespace={namespace}", "logs", pod, f"--tail={lines}")
        except ClusterBroken as error:
            return str(error)  # it has never started, or its node cannot be reached

    def remove(self) -> None:
        """Delete the namespace, without waiting for its end."""
        self.kubectl("delete", "trainruns", "--all", "--wait=false", "--ignore-not-found")
        self.kubectl("delete", "pods", "--all", "--wait=false", "--grace-period=0", "--force")
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")


@contextmanager
def a_bed(cluster: Cluster, name: str) -> Iterator[Bed]:
    """A namespace, named after a test, that is removed in the end."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).removeprefix("test-")
    bed = Bed(cluster, f"{words[:40].strip('-')}-{secrets.token_hex(2)}")
    try:
        yield bed
    finally:
        bed.remove()
