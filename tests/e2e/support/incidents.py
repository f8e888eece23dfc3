"""What a test asserts of every incident: counted once, told, and resumed where the run was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tests.e2e.support.cluster_run import undisturbed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.support.cluster_run import ClusterRun, Json

Budget = Literal["failures", "preemptions"]

BUDGETS: dict[str, Budget] = {
    "AppError": "failures",
    "NodeLost": "preemptions",
    "OutOfMemory": "failures",
    "Preempted": "preemptions",
    "Silent": "failures",
    "Unknown": "failures",
}
"""What a run with a budget of its own for preemptions charges each cause to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A run that trains, before something happens to it."""

    run: ClusterRun
    attempt: int
    failures: int
    preemptions: int
    committed: int
    """Step of the newest checkpoint in the store."""
    uids: tuple[str, ...]
    """Of the pods, by slot."""

    def nothing_happened(self) -> None:
        """No attempt has ended since, and no pod was replaced."""
        status = self.run.status
        assert status["attempt"] == self.attempt, self.run.story()
        assert status["internal"].get("ending") is None
        assert self.counts(status) == {"failures": self.failures, "preemptions": self.preemptions}
        assert uids(self.run) == self.uids

    def one_incident(self, expected: str | Mapping[str, Budget], *, seconds: float = 120.0) -> Json:
        """Wait until the run goes on after one incident of this cause; return the incident.

        It was counted once, in this cause's budget, told by events, and what had been committed was
        used. Where several causes may be seen, each is given with its budget.
        """
        run = self.run
        status = run.wait(
            f"attempt {self.attempt + 1} to run",
            lambda s: s["attempt"] > self.attempt and s["phase"] in ("Running", "Succeeded"),
            seconds=seconds,
        )
        assert status["attempt"] == self.attempt + 1, run.story()
        incident = self._only_incident(status)
        causes = {expected: BUDGETS[expected]} if isinstance(expected, str) else expected
        cause, budget = incident["cause"], incident["budget"]
        assert causes.get(cause) == budget, run.story()
        counts = {"failures": self.failures, "preemptions": self.preemptions}
        assert self.counts(status) == {**counts, budget: counts[budget] + 1}
        resumed = incident["resumedFrom"]
        assert resumed["step"] >= self.committed
        assert status["internal"]["startRecord"]["resumePoint"] == resumed
        events = run.events()
        told = {
            f"attempt {self.attempt} ended: {cause}: {incident['message']}",
            f"attempt {self.attempt} ended for another reason: {cause}: {incident['message']}",
        }
        started = (
            f"attempt {self.attempt + 1} starts from step {resumed['step']} "
            f"of attempt {resumed['attempt']} with {len(self.uids)} workers"
        )
        ends = [at for at, event in enumerate(events) if event[0] == cause and event[1] in told]
        assert ends, run.story()
        assert ("Started", started) in events
        assert ends[0] < events.index(("Started", started))
        return incident

    def saved_on_notice(self, slot: int, *, seconds: float = 120.0) -> Json:
        """The same for a worker that is taken away: the checkpoint made on its notice is used."""
        incident = self.one_incident("Preempted", seconds=seconds)
        asked = f"asking the training for a checkpoint: worker of slot {slot} will be taken away ("
        assert any(message.startswith(asked) for _, message in self.run.events())
        saved = r"; saved step (\d+) or later$|; the script ended after"
        told = re.search(saved, incident["message"])
        assert told is not None, incident
        # Until they are told to stop, the ranks may save once more by themselves.
        assert incident["resumedFrom"]["step"] >= int(told[1] or 0)
        assert incident["resumedFrom"]["attempt"] == self.attempt
        assert self.replaced() == {slot}
        return incident

    def replaced(self) -> set[int]:
        """The slots that have another pod now."""
        pairs = zip(self.uids, uids(self.run), strict=True)
        return {slot for slot, (old, new) in enumerate(pairs) if old != new}

    def _only_incident(self, status: Json) -> Json:
        found = [i for i in status["incidents"] if i["attempt"] >= self.attempt]
        assert [i["attempt"] for i in found] == [self.attempt], self.run.story()
        assert found[0]["counted"]
        return dict(found[0])

    @staticmethod
    def counts(status: Json) -> dict[str, int]:
        """Both budgets as they are charged."""
        failures: dict[str, Any] = status["failures"]
        return {
            "failures": failures.get("counted", 0),
            "preemptions": failures.get("preemptions", 0),
        }


def uids(run: ClusterRun) -> tuple[str, ...]:
    """The uids of the pods of the newest start record, by slot."""
    slots = range(len(run.status["internal"]["startRecord"]["roster"]))
    return tuple(run.pod(slot)["metadata"]["uid"] for slot in slots)


def training(run: ClusterRun, *, seconds: float = 120.0) -> Before:
    """Wait until every rank trains and a checkpoint of this attempt is committed."""
    run.wait_for_phase("Running", seconds=seconds)
    record = run.status["internal"]["startRecord"]
    begin = (record.get("resumePoint") or {"step": 0})["step"]
    run.wait_for_checkpoint(begin + 1, seconds=seconds)
    status = run.status
    assert status["phase"] == "Running", run.story()
    counts = Before.counts(status)
    committed = run.newest_step()
    assert committed is not None
    return Before(
        run=run,
        attempt=status["attempt"],
        failures=counts["failures"],
        preemptions=counts["preemptions"],
        committed=committed,
        uids=uids(run),
    )


def succeeded(run: ClusterRun, *, seconds: float = 120.0) -> Json:
    """Wait for the end; what every rank has learned is what an undisturbed run learns."""
    status = run.wait_for_phase("Succeeded", seconds=seconds)
    last = run.newest_step()
    assert last is not None
    ranks = status["internal"]["startRecord"]["worldSize"]
    assert run.chains(last) == undisturbed(ranks=ranks, steps=last)
    assert run.condition("Complete")["status"] == "True"
    return status
