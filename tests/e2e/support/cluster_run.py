"""A TrainRun of a test: what it says, what lies in its storage, and waiting for it."""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.support.bed import Bed

Json = dict[str, Any]


class ClusterRun:
    """A TrainRun that was applied."""

    def __init__(self, bed: Bed, name: str) -> None:
        self.bed = bed
        self.name = name
        self.in_storage = name
        """spec.storage.runName."""

    # ------------------------------------------------------------------------ what it says

    @property
    def status(self) -> Json:
        """status, empty while there is none."""
        found: Json = self.bed.api.get(self.path).get("status", {})
        return found

    @property
    def path(self) -> str:
        """Of the object in the API."""
        return f"/apis/trainrun.dev/v1alpha1/namespaces/{self.bed.namespace}/trainruns/{self.name}"

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
        selector = f"fieldSelector=involvedObject.name%3D{self.name}"
        path = f"/api/v1/namespaces/{self.bed.namespace}/events?{selector}"
        # They are written in order, and their times are whole seconds.
        items = sorted(
            self.bed.api.get(path)["items"], key=lambda e: int(e["metadata"]["resourceVersion"])
        )
        return [(event["reason"], event["message"]) for event in items]

    def reasons(self) -> list[str]:
        """Reasons of its events."""
        return [reason for reason, _ in self.events()]

    def ends_with(self, reason: str) -> None:
        """Wait until its last event has this reason: events follow the status that they tell of."""
        eventually(lambda: self.reasons()[-1:] == [reason], what=f"the last event is {reason}")

    def pods(self) -> list[Json]:
        """All pods of the run, whatever their state."""
        selector = f"labelSelector=trainrun.dev/run%3D{self.name}"
        return list(self.bed.api.get(f"{self._pods}?{selector}")["items"])

    def pod(self, slot: int) -> Json:
        """The pod of a slot in the newest start record."""
        creation = self.status["internal"]["startRecord"]["roster"][slot]
        return self.bed.api.get(f"{self._pods}/{self.name}-{slot}-{creation}")

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.bed.namespace}/pods"

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
                and s["internal"].get("startRecord") is not None
                and s["internal"].get("ending") is None
            ),
            seconds=seconds,
        )

    def story(self) -> str:
        """Everything there is to know, for a test that failed."""
        return self.bed.story()

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
        return max((step for step, _ in self.committed()), default=None)

    def committed(self) -> set[tuple[int, int]]:
        """(step, attempt) of the committed checkpoints in the store.

        Read where its server keeps them: it is asked often, and a listing costs a hundred times
        as much.
        """
        folder = self.bed.store.data / self.bed.bucket / "runs" / self.in_storage / "checkpoints"
        parts = [found.parent.name.split("-") for found in folder.glob("*/manifest.json")]
        return {(int(step), int(attempt)) for _, step, _, attempt in parts}

    def chains(self, step: int) -> list[str]:
        """What each rank of counting.py had learned at this step, as it was committed last."""
        attempt = max(attempt for found, attempt in self.committed() if found == step)
        # What an attempt that was lost has stored of the same step is cleaned up at any time.
        folder = f"/step-{step:09d}-attempt-{attempt}/"
        keys = [key for key in self._keys() if folder in key and "/rank-" in key]
        ranks = {}
        for key in keys:
            body = self.bed.s3.get_object(Bucket=self.bed.bucket, Key=key)["Body"].read()
            ranks[int(key.rpartition("/rank-")[2].removesuffix(".json"))] = json.loads(body)[
                "chain"
            ]
        return [ranks[rank] for rank in sorted(ranks)]

    def _keys(self) -> list[str]:
        pages = self.bed.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bed.bucket, Prefix=f"runs/{self.in_storage}/"
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


def undisturbed(*, ranks: int, steps: int) -> list[str]:
    """What each rank of counting.py must have learned in the end."""
    chains = []
    for rank in range(ranks):
        chain = ""
        for step in range(1, steps + 1):
            chain = hashlib.sha256(f"{chain} {rank} {step}".encode()).hexdigest()
        chains.append(chain)
    return chains
