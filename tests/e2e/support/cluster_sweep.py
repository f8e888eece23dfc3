"""A TrainSweep of a test: what it says, what its log says, and waiting for it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from trainrun.checkpoint.records import read_checksummed
from trainrun.sweep.records import Ask, LogEntry, Tell
from trainrun.sweep.view import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.support.bed import Bed
    from trainrun.sweep.records import Record
    from trainrun.sweep.view import SweepView

Json = dict[str, Any]

LR = {"name": "lr", "float": {"low": 0.001, "high": 0.1, "log": True}}


def trainsweep(bed: Bed, *, args: tuple[object, ...] = (), **spec: Any) -> Json:
    """A sweep of searched.py, with two workers for each trial."""
    run = bed.trainrun(
        script="searched.py", replicas=2, args=("--lr=$(TRAINRUN_PARAM_LR)", *args), gpus=1
    )["spec"]
    storage = {**run.pop("storage"), "uri": f"s3://{bed.bucket}/sweeps"}
    return {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainSweep",
        "metadata": {"name": "search", "namespace": bed.namespace},
        "spec": {
            "storage": storage,
            "objective": {"metric": "loss", "goal": "minimize"},
            "space": [LR],
            "budget": {"trials": 6},
            "maxConcurrent": 2,
            "run": run,
            **spec,
        },
    }


def written_once(records: list[Record]) -> None:
    """Assert that each number was asked for once, and each end told once."""
    asked = [it.trial for it in records if isinstance(it, Ask)]
    told = [(it.trial, it.opening) for it in records if isinstance(it, Tell)]
    assert asked == list(range(len(asked)))
    assert len(told) == len(set(told))


def parameters(records: list[Record]) -> dict[int, Any]:
    """Those of each trial."""
    return {it.trial: it.params for it in records if isinstance(it, Ask)}


class ClusterSweep:
    """A TrainSweep that was applied."""

    def __init__(self, bed: Bed, **options: Any) -> None:
        self.bed = bed
        bed.apply(trainsweep(bed, **options))

    def condition(self, kind: str) -> Json:
        """The condition of this type; empty where there is none."""
        conditions = self.status.get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    @property
    def path(self) -> str:
        """Of the object in the API."""
        return f"/apis/trainrun.dev/v1alpha1/namespaces/{self.bed.namespace}/trainsweeps/search"

    @property
    def status(self) -> Json:
        """status, empty while there is none."""
        found: Json = self.bed.api.get(self.path).get("status", {})
        return found

    def wait(self, what: str, until: Callable[[Json], object], *, seconds: float = 120.0) -> Json:
        """Wait until `until(status)` is true; returns that status."""
        deadline = time.monotonic() + seconds
        while not until(status := self.status):
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {seconds:.0f} s for {what}\n{self.story()}")
            time.sleep(0.3)
        return status

    def wait_for_phase(self, phase: str, *, seconds: float = 240.0) -> Json:
        """Wait for this phase; a sweep that fails meanwhile ends the wait."""
        ends = {phase, "Failed", "Succeeded"}
        status = self.wait(f"phase {phase}", lambda s: s.get("phase") in ends, seconds=seconds)
        assert status["phase"] == phase, f"{status['phase']} instead of {phase}\n{self.story()}"
        return status

    def trials(self) -> dict[str, Json]:
        """The TrainRuns that are there, by name."""
        path = f"/apis/trainrun.dev/v1alpha1/namespaces/{self.bed.namespace}/trainruns"
        selector = "labelSelector=trainrun.dev/sweep%3Dsearch"
        return {
            it["metadata"]["name"]: it for it in self.bed.api.get(f"{path}?{selector}")["items"]
        }

    def wait_for_trial(self, phase: str, *, seconds: float = 120.0) -> str:
        """Wait until some trial is in this phase; returns its TrainRun's name."""

        def found() -> list[str]:
            return [
                n for n, it in self.trials().items() if it.get("status", {}).get("phase") == phase
            ]

        deadline = time.monotonic() + seconds
        while not (names := found()):
            assert time.monotonic() < deadline, f"no trial is {phase}\n{self.story()}"
            time.sleep(0.3)
        return names[0]

    def clerks(self) -> list[str]:
        """Names of the clerk's pods that are not on their way out."""
        selector = "labelSelector=trainrun.dev/sweep%3Dsearch"
        pods = self.bed.api.get(f"/api/v1/namespaces/{self.bed.namespace}/pods?{selector}")["items"]
        return [it["metadata"]["name"] for it in pods if "deletionTimestamp" not in it["metadata"]]

    def node_of(self, pod: str) -> str:
        """Where a pod of the sweep is."""
        found = self.bed.api.get(f"/api/v1/namespaces/{self.bed.namespace}/pods/{pod}")
        return str(found["spec"]["nodeName"])

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Merge into the spec."""
        body = json.dumps({"spec": spec})
        self.bed.kubectl("patch", "trainsweep", "search", "--type=merge", f"--patch={body}")

    def log(self) -> tuple[SweepView, list[Record]]:
        """What stands in the store: the view and the records."""
        pages = self.bed.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bed.bucket, Prefix="sweeps/search/log/"
        )
        keys = sorted(item["Key"] for page in pages for item in page.get("Contents", []))
        records = [self._record(key) for key in keys]
        return fold(records), records

    def _record(self, key: str) -> Record:
        body = self.bed.s3.get_object(Bucket=self.bed.bucket, Key=key)["Body"].read()
        return read_checksummed(LogEntry, body, name=key).record

    def story(self) -> str:
        """Everything there is to know, for a test that failed."""
        described = self.bed.kubectl("describe", "trainsweeps")
        clerks = [self.bed.kubectl("logs", name, "--tail=30") for name in self.clerks()]
        return "\n".join([described, *clerks, self.bed.story()])
