"""One incident out of all losses: the best explanation, refined until it is settled."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.builders import BEGIN, WorkerObservation, a_loss, a_run, an_incident, seconds
from trainrun.contract.answer import Hold
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerLoss
from trainrun_operator.core.run.incidents.attribution import LINGER, best, incident_of
from trainrun_operator.core.run.incidents.losses import Loss

BROKEN = "RuntimeError: [pair.cc] Connection reset by peer [10.0.0.2]"

RANKED: tuple[Loss, ...] = (
    a_loss(Cause.INTERRUPTED),
    a_loss(Cause.PREEMPTED),
    a_loss(Cause.NODE_LOST),
    a_loss(Cause.OUT_OF_MEMORY, rank=0, exit_code=137, signalled=True),
    a_loss(Cause.APP_ERROR, rank=0, exit_code=139, signalled=True),
    a_loss(Cause.APP_ERROR, rank=0, exit_code=1),
    a_loss(Cause.SILENT),
    a_loss(Cause.RENDEZVOUS_FAILED),
    a_loss(Cause.APP_ERROR, rank=0, exit_code=1, collateral=True),
)
"""Best first: notice, node, memory, signal, exception, silence, rendezvous, broken collective."""


@pytest.mark.parametrize(("better", "worse"), list(pairwise(RANKED)))
def test_of_two_losses_the_better_explanation_wins_whenever_it_happened(
    better: Loss, worse: Loss
) -> None:
    older = Loss(
        slot=1, cause=worse.cause, message="older", age=seconds(60), rank=worse.rank,
        exit_code=worse.exit_code, signalled=worse.signalled, collateral=worse.collateral,
    )  # fmt: skip
    assert best([older, better]) is better
    assert best([better, older]) is better


def test_an_exception_of_several_lines_makes_a_message_of_one() -> None:
    error = "RuntimeError: CUDA error: out of memory\n  Compile with `TORCH_USE_CUDA_DSA`\n"
    scene = a_run(replicas=2, max_failures=5).running().with_exit(1, code=1, exception=error)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.message.startswith(
        "rank 1 exited with code 1: RuntimeError: CUDA error: out of "
    )
    assert "out of memory Compile with `TORCH_USE_CUDA_DSA`" in incident.message
    assert all("\n" not in event.message for event in scene.plan.events)


@pytest.mark.parametrize(("better", "worse"), list(pairwise(RANKED)))
def test_an_open_incident_is_refined_by_better_explanations_only(better: Loss, worse: Loss) -> None:
    scene = a_run(replicas=2, max_failures=5).running()

    def refined(first: Loss, second: Loss) -> str:
        made = incident_of(first, attempt=1, now=scene.now)
        now = saying(scene.ended(made), second)
        incident = now.plan.status.incident
        return incident.cause if incident is not None else "none"

    assert refined(worse, better) == better.cause
    assert refined(better, worse) == better.cause


def test_a_hang_is_explained_by_an_exception_that_is_heard_of_late() -> None:
    """The rank that died is why the others waited; its agent was not heard for a while."""
    scene = a_run(replicas=2, max_failures=5).running()
    hung = an_incident(Cause.HUNG, slot=0, exit_code=None, time=scene.now)
    scene = scene.ended(hung).with_exit(1, code=1, exception="ValueError: bad batch", age=70.0)
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.slot) == ("AppError", 1)
    assert incident.message == "rank 1 exited with code 1: ValueError: bad batch"


def cause_of(scene: WorkerObservation) -> str:
    """Of the incident after this pass."""
    incident = scene.plan.status.incident
    assert incident is not None
    return incident.cause


def saying(scene: WorkerObservation, loss: Loss) -> WorkerObservation:
    """The scene in which slot 1 tells of this loss."""
    if loss.cause is Cause.UNKNOWN:
        return scene.with_worker(1, phase="Ended")
    if loss.cause is not Cause.APP_ERROR and loss.exit_code is None:
        return scene.lost(1, loss.cause)
    if loss.cause is Cause.OUT_OF_MEMORY:
        return scene.with_exit(1, oom=True)
    if loss.signalled:
        return scene.with_exit(1, signal=11)
    return scene.with_exit(1, exception=BROKEN if loss.collateral else "ValueError: x")


def test_among_equals_the_first_loss_wins_then_the_lowest_slot() -> None:
    early, late = a_loss(slot=2, age=seconds(9)), a_loss(slot=0, age=seconds(1))
    assert best([late, early]) is early
    same = a_loss(slot=1, age=seconds(9))
    assert best([early, same]) is same


def test_no_loss_no_explanation() -> None:
    assert best([]) is None


def test_a_refinement_is_written_before_anything_follows_from_it() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan).lost(1, Cause.NODE_LOST, "node b is gone")
    plan = scene.plan
    assert plan.transition
    assert plan.message == "attempt 1 ended for another reason: NodeLost: node b is gone"
    assert [event.reason for event in plan.events] == ["NodeLost"]
    # The worker that told it is gone now: the explanation stays.
    later = scene.after(plan).without(1)
    assert later.plan.reason == "Gathering"
    incident = later.plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.node) == ("NodeLost", "node-1")


@pytest.mark.case(
    "processes",
    "Other ranks die of broken collectives; they do not hide the culprit",
    counted="one incident",
)
def test_ranks_may_end_by_themselves_for_a_moment_while_only_consequences_are_known() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan)
    assert lingering(scene) == LINGER
    assert lingering(scene.after(passed=1.9)) == LINGER
    assert lingering(scene.after(passed=2.0)) == 0.0
    scene = scene.with_exit(1, code=3)
    assert lingering(scene.after(scene.plan)) == 0.0, "the culprit is known"


def test_nobody_waits_for_ranks_whose_peer_is_known_to_be_the_culprit() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    assert lingering(scene.after(scene.plan)) == 0.0


def lingering(scene: WorkerObservation) -> float:
    """What its second worker is told."""
    order = scene.answer(1).order
    assert isinstance(order, Hold)
    return order.linger_seconds


def test_a_refined_incident_keeps_when_it_was_seen_how_fast_and_how_far_its_attempt_was() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN, age=0.2504)
    first = scene.plan.status.incident
    later = scene.after(scene.plan, passed=3).with_exit(1, signal=9, age=8.0)
    second = later.plan.status.incident
    assert first is not None
    assert second is not None
    assert second.message == "rank 1 was killed by SIGKILL"
    assert (second.time, second.detect_seconds) == (first.time, 0.25)
    assert (second.step, second.template) == (10, "t1")


def test_a_later_event_does_not_explain_an_earlier_crash() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    scene = scene.after(scene.plan, passed=10)
    assert cause_of(scene.lost(1, Cause.NODE_LOST)) == "AppError"
    assert cause_of(scene.noticed(1).with_worker(1, phase="Ended")) == "AppError"
    assert cause_of(scene.with_exit(1, oom=True, age=9.9)) == "AppError"
    assert cause_of(scene.with_exit(1, oom=True, age=10.0)) == "OutOfMemory"


def test_what_befalls_another_worker_later_explains_neither_a_silence_nor_a_sigterm() -> None:
    running = a_run(replicas=3, max_failures=3, on_notice="Stop").running()
    for scene in (running.silent(1, 31), running.got_sigterm(1)):
        later = scene.after(scene.plan, passed=5)
        assert later.lost(2, Cause.NODE_LOST).plan.reason == "Gathering"
        assert later.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"


def test_what_is_learned_late_of_a_worker_that_has_been_silent_explains_the_crash() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    scene = scene.after(scene.plan, passed=10).silent(1, 11)
    assert scene.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"


def test_a_notice_that_came_before_the_crash_explains_it() -> None:
    scene = a_run(max_failures=3).running().with_exit(0)
    scene = scene.after(scene.plan, passed=10).noticed(1, age=11.0)
    assert scene.with_worker(1, phase="Ended").plan.reason == "Preempted"
    signalled = scene.with_worker(1, notice=None)
    loss = WorkerLoss(cause=Cause.TERMINATED, message="it was evicted", age=seconds(1))
    assert signalled.with_worker(1, phase="Ended", loss=loss).plan.reason == "Terminated"


def test_broken_collectives_are_explained_by_what_comes_soon_and_not_by_what_comes_later() -> None:
    """heartbeatTimeout (30 s) and 30 s more, by which a dead node is known to be one."""
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    soon, later = (scene.after(scene.plan, passed=passed) for passed in (60, 70))
    assert soon.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"
    assert later.lost(1, Cause.NODE_LOST).plan.reason == "Gathering"
    assert soon.without(1).plan.reason == "Preempted"
    assert later.without(1).plan.reason == "Gathering"


@pytest.mark.case(
    "processes",
    "Some ranks meet and others do not find them before the first step",
    counted="maxFailures after three in a row",
)
def test_a_rendezvous_that_failed_is_free_though_what_broke_for_it_is_heard_first() -> None:
    """The run failed with MaxFailuresExceeded for what costs nothing."""
    scene = a_run(max_failures=0).running().with_all(steps=(None,)).with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan)
    assert scene.plan.reason == "Attributing"
    missed = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms"
    plan = scene.after(scene.plan, passed=1).with_exit(1, exception=missed, age=1.5).plan
    assert (plan.reason, plan.transition) == ("RendezvousFailed", True)
    incident = plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.budget) == (1, "none")


def test_a_lost_node_explains_a_rendezvous_that_failed() -> None:
    missed = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients"
    scene = a_run(max_failures=3).running().with_all(steps=(None,)).with_exit(0, exception=missed)
    scene = scene.asked_for_evidence()
    soon, later = (scene.after(scene.plan, passed=passed) for passed in (60, 70))
    assert soon.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"
    assert later.lost(1, Cause.NODE_LOST).plan.reason == "Gathering"


def test_a_new_operator_does_not_know_since_when_a_worker_it_never_heard_is_lost() -> None:
    """So its loss explains what nothing else does, however late: the node may have died first."""
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=600).listening(5).unheard(1)
    assert scene.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"
    silent = a_run(replicas=3, max_failures=3).running().silent(0, 31)
    silent = silent.after(silent.plan, passed=600).listening(5).unheard(1)
    assert silent.lost(1, Cause.NODE_LOST).plan.reason == "NodeLost"
    known = a_run(max_failures=3).running().with_exit(0)
    known = known.after(known.plan, passed=600).listening(5).unheard(1)
    assert cause_of(known.lost(1, Cause.NODE_LOST)) == "AppError"


def test_a_process_that_was_killed_before_the_notice_came_was_not_preempted() -> None:
    scene = a_run(max_failures=3).running().with_exit(1, signal=11, age=3.0)
    assert scene.noticed(1, age=1.0).plan.reason == "AppError"


def test_an_exit_code_above_the_signals_is_not_a_signal() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, code=255)
    scene = scene.after(scene.plan).with_exit(1, signal=9)
    assert scene.plan.message == (
        "attempt 1 ended for another reason: AppError: rank 1 was killed by SIGKILL"
    )


def test_a_signal_that_no_kernel_has_is_told_once() -> None:
    scene = a_run(max_failures=3).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan).with_exit(1, signal=99)
    assert scene.plan.transition
    assert not scene.after(scene.plan).plan.transition


def test_an_abort_of_a_broken_collective_does_not_hide_the_exception_behind_it() -> None:
    """NCCL's watchdog ends the ranks that were left alone with SIGABRT."""
    lines = ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",)
    scene = a_run().running().with_exit(0, signal=6, last_lines=lines)
    scene = scene.with_exit(1, exception="ValueError: bad batch")
    assert scene.plan.message == (
        "attempt 1 ended: AppError: rank 1 exited with code 1: ValueError: bad batch"
    )


def test_an_abort_without_such_lines_is_a_signal_like_any_other() -> None:
    scene = a_run().running().with_exit(0, signal=6, last_lines=("terminate called",))
    incident = scene.plan.status.incident
    assert incident is not None
    assert not incident.collateral


def test_a_failing_verdict_waits_for_the_rank_that_has_said_nothing() -> None:
    scene = a_run().running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan)
    plan = scene.plan
    assert plan.reason == "Attributing"
    assert plan.message == (
        f"rank 0 exited with code 1: {BROKEN}: this may be a consequence; waiting for the other "
        "workers"
    )
    assert plan.actions == ()
    assert scene.hold(1).attempt == 2


def test_a_failing_verdict_waits_no_longer_than_the_heartbeat_timeout() -> None:
    scene = a_run().running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=30)
    assert scene.plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_comes_at_once_when_everybody_has_spoken() -> None:
    scene = a_run().running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan).with_exit(1, signal=9, ordered=True)
    assert scene.plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_a_worker_that_is_gone() -> None:
    scene = a_run(replicas=3).running().with_exit(0, exception=BROKEN)
    scene = scene.with_agent(2, phase="Idle").without(1)
    told = scene.after(scene.plan)
    assert told.plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_ever_for_a_worker_whose_node_went_dark() -> None:
    """It died after one of its ranks had failed, so it explains nothing; nobody deletes its pod."""
    scene = a_run(max_preemptions=-1).running().with_exit(1, exception=BROKEN)
    scene = scene.after(scene.plan, passed=300).with_agent(0, phase="Idle")
    scene = scene.with_agent(1, phase="Running").silent(1, 290)
    assert scene.with_worker(1, suspect_node="NotReady").plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_waits_for_a_worker_that_was_not_heard_yet() -> None:
    scene = a_run().running().with_exit(0, exception=BROKEN)
    assert scene.after(scene.plan).unheard(1).plan.reason == "Attributing"


@pytest.mark.case(
    "nodes",
    "Peers report connection errors before the operator learns of the node",
    counted="one incident",
)
def test_a_failing_verdict_waits_until_a_silent_rank_is_judged() -> None:
    """Of a gang that lost most of its workers at once none is judged before three timeouts."""
    scene = a_run(replicas=3, max_preemptions=-1).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=60).silent(1, 61).silent(2, 61)
    assert scene.plan.reason == "Attributing"
    late = scene.silent(1, 91).silent(2, 91)
    for slot in (1, 2):
        late = late.with_worker(slot, suspect_node="its lease was not renewed for 80 s")
    plan = late.plan
    assert (plan.reason, plan.transition) == ("NodeLost", True)
    assert late.after(plan).plan.reason == "Gathering"


def test_a_failing_verdict_waits_for_a_rank_whose_last_word_came_after_the_crash() -> None:
    """It left the machine with the node that died, and was late; the crash is its consequence."""
    scene = a_run(max_preemptions=-1).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=30).silent(1, 29)
    assert scene.plan.reason == "Attributing"
    lost = scene.silent(1, 31).with_worker(1, suspect_node="NotReady").plan
    assert (lost.reason, lost.transition) == ("NodeLost", True)


def test_news_of_a_dead_node_that_come_after_its_silent_worker_was_named_explain_it() -> None:
    """The run failed with MaxFailuresExceeded: the worker's last word was read after the crash."""
    scene = a_run(max_preemptions=-1).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=31).silent(1, 30.9)
    scene = scene.after(scene.plan, passed=4).silent(1, 34.9)
    assert scene.plan.message == (
        "worker run-1-1 has sent no heartbeat for 31 s: its node may explain it; "
        "waiting for the state of the node"
    )
    lost = scene.with_worker(1, suspect_node="NotReady").plan
    assert (lost.reason, lost.transition) == ("NodeLost", True)


def test_a_failing_verdict_waits_until_a_new_operator_could_have_heard_the_rank() -> None:
    scene = a_run(replicas=3, max_preemptions=-1).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=60).with_exit(2, signal=9, ordered=True)
    scene = scene.with_worker(1, suspect_node="NotReady")
    assert scene.listening(30).unheard(1).plan.reason == "Attributing"
    assert scene.listening(31).unheard(1).plan.reason == "NodeLost"


def test_a_failing_verdict_waits_for_the_node_of_a_rank_that_a_new_operator_never_heard() -> None:
    """Power loss: the run failed for what its peers had died of, 30 s before the node was known."""
    scene = a_run(max_preemptions=-1).running().with_exit(0, exception=BROKEN)
    scene = scene.after(scene.plan, passed=60).listening(60).unheard(1)
    assert scene.plan.reason == "Attributing"
    lost = scene.with_worker(1, suspect_node="NotReady").plan
    assert (lost.reason, lost.transition) == ("NodeLost", True)
    late = scene.after(scene.plan, passed=1).listening(61).unheard(1)
    assert late.plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_on_a_silent_worker_waits_for_its_node() -> None:
    scene = a_run(replicas=3, max_preemptions=-1).running().silent(1, 31)
    assert scene.plan.reason == "Silent"
    scene = scene.after(scene.plan, passed=59).silent(1, 90)
    assert scene.plan.reason == "Attributing"
    assert scene.plan.message == (
        "worker run-1-1 has sent no heartbeat for 31 s: its node may explain it; waiting for "
        "the state of the node"
    )
    known = scene.with_worker(1, suspect_node="NotReady")
    assert known.plan.reason == "NodeLost"
    assert known.after(known.plan).plan.reason == "Gathering"
    settled = known.after(known.plan).lost(1, Cause.NODE_LOST)
    assert settled.after(known.plan).status.failures.text == "0/0"


def test_a_failing_verdict_on_a_silent_worker_comes_when_its_node_is_well() -> None:
    scene = a_run(replicas=3).running().silent(1, 31)
    scene = scene.after(scene.plan, passed=60).silent(1, 91)
    assert scene.plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_the_node_of_a_worker_that_is_gone() -> None:
    scene = a_run(replicas=3).running().silent(1, 31)
    assert scene.after(scene.plan).without(1).plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_the_node_of_a_worker_that_has_ended() -> None:
    scene = a_run(replicas=3).running().with_worker(1, phase="Ended").silent(1, 31)
    assert scene.after(scene.plan).plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_the_node_of_a_worker_of_which_none_is_known() -> None:
    scene = a_run(replicas=3).running().silent(1, 31).with_worker(1, node="")
    assert scene.after(scene.plan).plan.reason == "MaxFailuresExceeded"


def test_a_failing_verdict_does_not_wait_for_a_worker_that_speaks_again() -> None:
    scene = a_run(replicas=3).running().silent(1, 31)
    assert scene.after(scene.plan).silent(1, 1).plan.reason == "MaxFailuresExceeded"


def test_a_silence_of_another_roster_waits_for_nobody() -> None:
    scene = a_run().running()
    for slot in (None, 2):
        incident = an_incident(Cause.SILENT, slot=slot, time=scene.now)
        assert scene.ended(incident).plan.reason == "MaxFailuresExceeded"


def test_restarting_never_waits_for_attribution() -> None:
    scene = a_run(max_failures=1).running().with_exit(0, exception=BROKEN)
    assert scene.after(scene.plan).plan.reason == "Gathering"


def test_a_direct_cause_fails_the_run_at_once() -> None:
    scene = a_run().running().with_exit(0)
    assert scene.after(scene.plan).plan.reason == "MaxFailuresExceeded"


def test_an_incident_keeps_as_much_of_each_text_as_a_status_has_room_for() -> None:
    long, lines = "x" * 3000, tuple(f"{number:02d}" for number in range(30))
    loss = a_loss(
        worker=long, node=long, container=long, exception=(long,) * 30, raised_at=long,
        message=long, last_lines=lines,
    )  # fmt: skip
    incident = incident_of(loss, attempt=1, now=BEGIN)
    texts = (incident.worker, incident.node, incident.container, incident.raised_at)
    assert [len(text) for text in (*texts, incident.message)] == [253, 253, 63, 120, 1000]
    assert [len(kind) for kind in incident.exception] == [120] * 16
    assert incident.last_lines == lines[-20:]
    loss = replace(loss, last_lines=("a", "b" * 1000, "c" * 1000))
    assert len(incident_of(loss, attempt=1, now=BEGIN).last_lines) == 2
    loss = replace(loss, last_lines=("b" * 1001, "c" * 1000))
    assert len(incident_of(loss, attempt=1, now=BEGIN).last_lines) == 1


def test_an_answer_is_not_waited_for_from_a_worker_that_was_gone_before() -> None:
    incident = an_incident(collateral=True, message=f"rank 0 exited with code 1: {BROKEN}")
    scene = a_run(template_hash="t2").running().ended(incident).without(1).without(0)
    assert scene.plan.reason == "MaxFailuresExceeded"
