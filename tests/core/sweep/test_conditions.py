"""The conditions of a sweep, as `kubectl wait` asks for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.kstatus import kstatus
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.sweep.status import SweepPhase, TrainSweepStatus, json_object
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.display import with_conditions, with_refusal

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
NEW = TrainSweepStatus()
HOUR = timedelta(hours=1)


def conditions(
    status: TrainSweepStatus,
    *,
    before: TrainSweepStatus = NEW,
    clerk: ClerkUnknown | None = None,
    now: datetime = NOW,
) -> dict[str, Condition]:
    return {it.type: it for it in with_conditions(status, before=before, clerk=clerk, now=now)}


def test_a_sweep_at_work_says_nothing_but_that_its_clerk_is_there() -> None:
    found = conditions(TrainSweepStatus(phase="Running", reason="TrialsAtWork"))
    assert {kind: it.status for kind, it in found.items()} == {"ClerkReady": "True"}


def test_a_clerk_that_is_not_heard_is_told_with_the_reason() -> None:
    unknown = ClerkUnknown(reason="StorageUnavailable", message="no such bucket")
    it = conditions(TrainSweepStatus(phase="Pending"), clerk=unknown)["ClerkReady"]
    assert (it.status, it.reason, it.message) == ("False", "StorageUnavailable", "no such bucket")


def test_a_store_that_does_not_answer_is_told_until_it_does() -> None:
    away = ClerkUnknown(reason="StorageUnavailable", message="no such bucket")
    found = conditions(TrainSweepStatus(phase="Running"), clerk=away)
    it = found["StorageReady"]
    assert (it.status, it.reason, it.message) == ("False", "StorageUnavailable", "no such bucket")

    def next_(clerk: ClerkUnknown | None, phase: SweepPhase = "Running") -> tuple[str, str, str]:
        before = TrainSweepStatus(conditions=tuple(found.values()))
        it = conditions(TrainSweepStatus(phase=phase), before=before, clerk=clerk)["StorageReady"]
        return it.status, it.reason, it.message

    back = ("True", "Resolved", "the store answers again")
    assert next_(None) == back
    assert next_(ClerkUnknown(reason="ReadingLog", message="1 of 2 records")) == back
    silent = ("Unknown", "NotAsked", "no clerk has asked the store since")
    assert next_(ClerkUnknown(message="silent")) == silent
    assert next_(away, "Failed") == silent
    damaged = ClerkUnknown(reason="LogDamaged", message="log/000000002.json")
    assert next_(damaged) == ("False", "LogDamaged", "log/000000002.json")
    found = conditions(
        TrainSweepStatus(phase="Running"),
        before=TrainSweepStatus(conditions=tuple(found.values())),
    )
    assert next_(ClerkUnknown(message="silent")) == back, "nothing was wrong when it was asked last"


def test_a_sweep_that_is_over_needs_no_clerk() -> None:
    done = TrainSweepStatus(phase="Succeeded", reason="AllTrialsEnded", message="all 6")
    found = conditions(done, clerk=ClerkUnknown(message="gone"))
    assert {kind: it.status for kind, it in found.items()} == {"Complete": "True"}
    failed = conditions(TrainSweepStatus(phase="Failed", reason="SpecChanged"))
    assert failed["Failed"].reason == "SpecChanged"


def test_what_was_true_once_is_told_when_it_is_no_longer() -> None:
    suspended = TrainSweepStatus(phase="Suspended", reason="Suspended")
    before = TrainSweepStatus(conditions=tuple(conditions(suspended).values()))
    found = conditions(TrainSweepStatus(phase="Running"), before=before)
    assert (found["Suspended"].status, found["Suspended"].reason) == ("False", "Unknown")


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    status = TrainSweepStatus(phase="Running")
    before = TrainSweepStatus(conditions=tuple(conditions(status).values()))
    later = NOW + timedelta(hours=1)
    assert conditions(status, before=before, now=later)["ClerkReady"].last_transition_time == NOW
    unknown = ClerkUnknown(message="it has said nothing for 31 s")
    changed = conditions(status, before=before, clerk=unknown, now=later)["ClerkReady"]
    assert changed.last_transition_time == later


def test_an_object_that_is_too_large_is_told_beside_what_holds() -> None:
    ready = tuple(conditions(TrainSweepStatus(phase="Running", reason="TrialsAtWork")).values())
    status = TrainSweepStatus(reason="TooLarge", message="the object has 900 KiB", conditions=ready)

    first = with_refusal(status, now=NOW)
    status = TrainSweepStatus(reason="TooLarge", conditions=first, message="x")
    later = with_refusal(status, now=NOW + HOUR)

    assert [it.type for it in first] == ["ClerkReady", "TooLarge", "Stalled"]
    assert (first[1].status, first[1].message) == ("True", "the object has 900 KiB")
    assert later[1].last_transition_time == NOW
    found = conditions(TrainSweepStatus(phase="Running"), before=TrainSweepStatus(conditions=first))
    assert {"TooLarge", "Stalled"}.isdisjoint(found)


# ------------------------------------------------------------------------------ GitOps tools


def seen(status: TrainSweepStatus) -> tuple[str, str]:
    """What a tool that goes by kstatus's rules says of the sweep."""
    return kstatus({"metadata": {"generation": 0}, "status": json_object(status)})


@pytest.mark.parametrize(
    ("phase", "reason", "word"),
    [
        ("Pending", "TakingUp", "InProgress"),
        ("Running", "TrialsAtWork", "Current"),
        ("Running", "WaitingForRoom", "Current"),
        ("Running", "AllPaused", "Current"),
        ("Running", "TrialRefused", "InProgress"),
        ("Running", "Suspended", "InProgress"),
        ("Suspended", "Suspended", "Current"),
        ("Running", "Ending", "Current"),
        ("Succeeded", "AllTrialsEnded", "Current"),
        ("Failed", "TooManyFailedTrials", "Failed"),
    ],
)
def test_gitops_tools_see_how_a_sweep_stands(phase: SweepPhase, reason: str, word: str) -> None:
    status = TrainSweepStatus(phase=phase, reason=reason, message="4 of 9")
    status = replace(status, conditions=tuple(conditions(status).values()))
    assert seen(status) == (word, "" if word == "Current" else "4 of 9")


def test_a_sweep_whose_clerk_is_not_there_is_in_progress() -> None:
    unknown = ClerkUnknown(message="it has said nothing for 31 s")
    status = TrainSweepStatus(phase="Running", reason=unknown.reason, message=unknown.message)
    status = replace(status, conditions=tuple(conditions(status, clerk=unknown).values()))
    assert seen(status) == ("InProgress", "it has said nothing for 31 s")


def test_a_sweep_whose_spec_cannot_be_used_needs_its_user() -> None:
    waits = TrainSweepStatus(phase="Pending", reason="TakingUp")
    before = tuple(conditions(waits).values())
    status = TrainSweepStatus(reason="InvalidSpec", message="spec.run: ...", conditions=before)
    refused = replace(status, conditions=with_refusal(status, now=NOW))
    assert seen(refused) == ("Failed", "spec.run: ...")
