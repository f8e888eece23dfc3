"""Asking where the ranks stand before a hang is acted upon: by whom, how long, what follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.evidence import Evidence, EvidenceRequest, Frame, RankEvidence
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.incidents.evidence import place_of

REDUCES = Frame(name="all_reduce", file="/site-packages/torch/distributed/distributed_c10d.py")
SLEEPS = Frame(name="step", file="/app/train.py", line=9, own=True)


def standing(*steps: int, owes: float = 121.0, **config: Any) -> WorkerObservation:
    """A gang of one process each that has owed a step for so long."""
    limits = {"progress_timeout": seconds(120)}
    scene = a_run(replicas=len(steps), max_failures=3, **(limits | config)).running()
    for slot, step in enumerate(steps):
        scene = scene.with_agent(slot, steps=(step,), owes=owes)
    return scene


def found(
    scene: WorkerObservation, slot: int, *stack: Frame, number: int = 1, **fields: Any
) -> WorkerObservation:
    """The agent of a slot tells where its rank stands."""
    rank = RankEvidence(rank=slot, step=5, state="S", stack=stack, **fields)
    evidence = Evidence(attempt=scene.status.attempt, number=number, ranks=(rank,))
    return scene.with_agent(slot, evidence=evidence)


def ended(scene: WorkerObservation) -> Incident:
    """What ends the attempt now."""
    incident = scene.plan.status.incident
    assert incident is not None, scene.plan
    assert incident.cause == "Hung"
    return incident


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
def test_it_is_asked_first_and_a_status_says_so() -> None:
    plan = standing(5, 4).plan
    assert (plan.reason, plan.transition, plan.status.incident) == ("StandsStill", True, None)
    assert plan.message == (
        "no step for 120 s (spec.health.progressTimeout): rank 1 is at step 4, 1 other at 5; "
        "asking the agents where their ranks are"
    )
    asked = plan.status.evidence_asked
    assert asked is not None
    assert (asked.attempt, asked.number) == (1, 1)
    assert plan.status.phase == "Running"


def test_agents_are_asked_by_their_answers_and_a_pass_is_due_when_the_time_is_over() -> None:
    scene = standing(5, 4)
    scene = scene.after(scene.plan, passed=8.0)
    assert scene.plan.reason == "Running"
    assert scene.plan.requeue_after == seconds(2)
    request = EvidenceRequest(attempt=1, number=1)
    assert [scene.answer(slot).evidence for slot in (0, 1)] == [request, request]
    assert standing(5, 4, owes=1.0).answer(0).evidence is None


def test_once_all_have_told_nobody_is_waited_for() -> None:
    scene = standing(5, 4).asked_for_evidence(ago=1.0)
    scene = found(scene, 0, REDUCES)
    assert scene.plan.reason == "Running"
    incident = ended(found(scene, 1, SLEEPS, last_lines=("step 4",)))
    assert incident.message == (
        "no step for 120 s (spec.health.progressTimeout): rank 1 is at step 4, 1 other at 5; "
        "one rank away: rank 1 is in `step` (train.py:9); 1 other in all_reduce"
    )
    assert (incident.hang, incident.evidence) == ("OneRankAway", "hangs/000001-1/")
    assert (incident.slot, incident.rank, incident.node) == (1, 1, "node-1")
    assert incident.last_lines == ("step 4",)
    assert incident.known_by.endswith("and where its ranks were then")


def test_nobody_is_waited_for_longer_than_ten_seconds() -> None:
    scene = standing(5, 4).asked_for_evidence(ago=9.9)
    assert scene.plan.status.incident is None
    incident = ended(standing(5, 4).asked_for_evidence(ago=10.0))
    assert incident.message.endswith("rank 1 is at step 4, 1 other at 5")
    assert (incident.hang, incident.evidence, incident.rank) == ("", "", 1)


def test_a_leader_whose_clock_was_ahead_makes_nobody_wait_for_hours() -> None:
    """A hang stood for six hours: an agent that is stuck does not answer."""
    assert standing(5, 4).asked_for_evidence(ago=-9.9).plan.reason == "Running"
    plan = standing(5, 4).asked_for_evidence(ago=-6 * 3600.0).plan
    asked = plan.status.evidence_asked
    assert asked is not None
    assert (plan.reason, asked.number) == ("StandsStill", 2)


def test_what_some_have_told_is_better_than_nothing() -> None:
    incident = ended(found(standing(5, 4).asked_for_evidence(), 0, REDUCES))
    assert incident.message.endswith(
        "; cause unknown: 1 rank is in all_reduce; nothing is known about 1 other; "
        "no rank is known to be behind"
    )
    assert incident.rank == 1


def test_the_rank_that_is_away_is_to_blame_whatever_the_steps_say() -> None:
    scene = standing(4, 5).asked_for_evidence()
    incident = ended(found(found(scene, 0, REDUCES), 1, SLEEPS))
    assert (incident.slot, incident.rank, incident.worker) == (1, 1, "run-1-1")


def test_where_all_are_in_one_collective_nobody_is_blamed() -> None:
    scene = standing(5, 4).asked_for_evidence()
    incident = ended(found(found(scene, 0, REDUCES), 1, REDUCES))
    assert incident.hang == "SameCollective"
    assert (incident.slot, incident.rank, incident.worker, incident.node) == (None, None, "", "")


def test_two_ranks_of_one_worker_that_are_away_blame_its_node() -> None:
    scene = standing(5, 5, processes_per_worker=2)
    scene = scene.with_agent(0, steps=(5, 5)).with_agent(1, steps=(5, 5)).asked_for_evidence()
    for slot, stack in ((0, REDUCES), (1, SLEEPS)):
        ranks = tuple(RankEvidence(rank=2 * slot + n, stack=(stack,)) for n in (0, 1))
        scene = scene.with_agent(slot, evidence=Evidence(attempt=1, number=1, ranks=ranks))
    incident = ended(scene)
    assert (incident.slot, incident.rank, incident.node) == (1, None, "node-1")


def test_what_was_found_in_another_hang_does_not_count() -> None:
    scene = found(standing(5, 4).asked_for_evidence(ago=5.0), 1, SLEEPS, number=7)
    assert scene.plan.reason == "Running"


def test_a_rank_that_has_ended_well_is_not_asked() -> None:
    end = ProcessExit(rank=0, code=0)
    scene = standing(9, 5).with_agent(0, phase="Idle", exits=(end,), owes=None)
    incident = ended(found(scene.asked_for_evidence(ago=1.0), 1, SLEEPS))
    assert incident.message.endswith("cause unknown: rank 1 is in `step` (train.py:9)")


def test_a_gang_that_goes_on_is_asked_anew_when_it_stands_still_again() -> None:
    scene = standing(5, 4, owes=1.0).asked_for_evidence(ago=60.0)
    scene = scene.with_all(stepped=2.0)
    assert scene.plan.status.evidence_asked is None
    waits = standing(5, 4, owes=1.0).asked_for_evidence(ago=60.0).with_all(stepped=61.0)
    assert waits.plan.status.evidence_asked is not None
    again = standing(5, 4).asked_for_evidence(ago=400.0)
    assert again.plan.reason == "StandsStill"
    asked = again.plan.status.evidence_asked
    assert asked is not None
    assert asked.number == 2


def test_a_gang_of_which_one_rank_reports_goes_on_with_that_one() -> None:
    """The stacks of a pause were kept, and ended the attempt in another one, minutes later."""
    scene = standing(5, 5, owes=1.0).asked_for_evidence(ago=60.0)
    scene = scene.with_agent(0, stepped=2.0).with_agent(1, steps=(None,), stepped=None)
    assert scene.plan.status.evidence_asked is None


def test_what_an_attempt_was_asked_says_nothing_to_the_next() -> None:
    scene = standing(5, 4).asked_for_evidence()
    asked = scene.status.evidence_asked
    assert asked is not None
    later = scene.running(2).with_all(steps=(5,), owes=121.0)
    assert later.plan.reason == "StandsStill"
    assert later.with_all(owes=1.0).answer(0).evidence is None
    assert asked.time == scene.now - timedelta(seconds=10)


def test_an_attempt_that_ends_for_another_reason_forgets_it() -> None:
    scene = standing(5, 4).asked_for_evidence(ago=1.0).with_exit(0, exception="ValueError: bad")
    assert scene.plan.reason == "AppError"
    assert scene.plan.status.evidence_asked is None


TIMED_OUT = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 20000ms for recv operation"


def in_vain(ranks: int = 2, **fields: Any) -> WorkerObservation:
    """Rank 1 has given up waiting in a collective; nobody was asked why."""
    scene = a_run(replicas=ranks, max_failures=3).running()
    return scene.with_exit(1, **({"exception": TIMED_OUT} | fields))


def test_a_rank_that_was_late_for_a_barrier_is_named_and_not_only_the_one_that_timed_out() -> None:
    scene = in_vain()
    asked = scene.plan
    assert (asked.reason, asked.events, asked.status.incident) == ("StandsStill", (), None)
    waits = scene.after(asked)
    assert (waits.plan.reason, waits.plan.status.incident) == ("Running", None)
    (event,) = found(waits, 0, SLEEPS).with_agent(1, evidence=told_nothing(waits)).plan.events
    assert event.message == (
        f"attempt 1 ended: AppError: rank 1 exited with code 1: {TIMED_OUT}; rank 1 waited for "
        "rank 0, which was in `step` (train.py:9)"
    )


def told_nothing(scene: WorkerObservation) -> Evidence:
    return Evidence(attempt=scene.status.attempt, number=1)


def test_of_several_that_were_late_the_place_of_the_first_is_told() -> None:
    scene = in_vain(4)
    scene = scene.after(scene.plan, passed=10.0)
    scene = found(found(found(scene, 0, REDUCES), 2, SLEEPS), 3, SLEEPS)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.message.endswith(
        "; rank 1 waited for ranks 2, 3, of which rank 2 was in `step` (train.py:9)"
    )
    assert (incident.rank, incident.evidence) == (1, "hangs/000001-1/")


@pytest.mark.case(
    "processes", "A rank reaches a collective or the rendezvous too late", counted="its cause"
)
def test_a_rank_that_was_late_to_meet_the_others_is_named_as_well() -> None:
    text = "DistStoreError: Timed out after 21 seconds waiting for clients. 1/2 clients joined."
    scene = in_vain(exception=text).with_all(steps=(None,))
    scene = found(scene.after(scene.plan, passed=10.0), 0, SLEEPS)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.cause == "RendezvousFailed"
    assert incident.message.endswith("waited for rank 0, which was in `step` (train.py:9)")


def test_without_an_answer_the_incident_comes_ten_seconds_later_and_names_nobody() -> None:
    scene = in_vain()
    waits = scene.after(scene.plan, passed=9.9)
    assert waits.plan.status.incident is None
    incident = scene.after(scene.plan, passed=10.0).plan.status.incident
    assert incident is not None
    assert incident.message.endswith("for recv operation")


def test_nobody_is_asked_where_a_peer_has_gone_or_nobody_is_left() -> None:
    gone = in_vain(exception="RuntimeError: Connection closed by peer").plan
    assert (gone.reason, gone.status.evidence_asked) == ("AppError", None)
    alone = in_vain().with_exit(0, exception=TIMED_OUT).plan
    assert (alone.reason, alone.status.evidence_asked) == ("AppError", None)


def test_where_it_stood_can_be_read_from_an_incident() -> None:
    scene = standing(5, 5).asked_for_evidence()
    incident = ended(found(found(scene, 0, SLEEPS), 1, REDUCES))
    assert place_of(incident.hang, incident.message) == "rank 0 is in `step` (train.py:9)"
    assert place_of("", incident.message) == ""
