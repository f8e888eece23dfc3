"""What counts as a loss, and what each one says about its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident, seconds
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerLoss
from trainrun_operator.core.run.incidents.losses import Loss, losses_of


def the_loss(scene: WorkerObservation) -> Loss:
    (loss,) = losses_of(scene.view)
    return loss


@pytest.mark.case("processes", "The kernel kills a process for memory", counted="maxFailures")
@pytest.mark.parametrize(
    ("end", "cause", "message", "exit_code"),
    [
        ({"code": 3}, Cause.APP_ERROR, "rank 1 exited with code 3: no exception was seen", 3),
        (
            {"code": 1, "last_lines": ("a", "Segfault in libfoo")},
            Cause.APP_ERROR,
            "rank 1 exited with code 1: no exception was seen; the last line of its output: "
            "Segfault in libfoo",
            1,
        ),
        (
            {"code": 1, "exception": "ValueError: bad batch", "last_lines": ("x",)},
            Cause.APP_ERROR,
            "rank 1 exited with code 1: ValueError: bad batch",
            1,
        ),
        ({"signal": 11}, Cause.APP_ERROR, "rank 1 was killed by SIGSEGV", 139),
        (
            {"signal": 6, "exception": "ValueError: bad batch"},
            Cause.APP_ERROR,
            "rank 1 was killed by SIGABRT after ValueError: bad batch",
            134,
        ),
        ({"signal": 40}, Cause.APP_ERROR, "rank 1 was killed by signal 40", 168),
        (
            {"oom": True},
            Cause.OUT_OF_MEMORY,
            "rank 1 was killed by the kernel: out of memory",
            137,
        ),
        (
            {"code": 127, "exception": "StartFailed: no such file: train.py"},
            Cause.START_FAILED,
            "rank 1 exited with code 127: StartFailed: no such file: train.py",
            127,
        ),
        (
            {"code": 1, "exception": "AgentRefused: checkpoint step-3 cannot be read: 403"},
            Cause.STORAGE_ERROR,
            "rank 1 exited with code 1: AgentRefused: checkpoint step-3 cannot be read: 403",
            1,
        ),
        (
            {"code": 1, "exception": "ValueError: AgentRefused is a word in a text"},
            Cause.APP_ERROR,
            "rank 1 exited with code 1: ValueError: AgentRefused is a word in a text",
            1,
        ),
    ],
)
def test_the_end_of_a_process_tells_the_cause(
    end: dict[str, object], cause: Cause, message: str, exit_code: int
) -> None:
    loss = the_loss(a_run().running().with_exit(1, **end))
    assert (loss.cause, loss.message, loss.exit_code) == (cause, message, exit_code)
    assert (loss.slot, loss.rank, loss.worker, loss.node) == (1, 1, "run-1-1", "node-1")


def test_the_exception_names_itself_where_its_process_could_not_tell_its_bases() -> None:
    scene = a_run().running()
    assert the_loss(scene.with_exit(0, code=3)).exception == ()
    assert the_loss(scene.with_exit(0, exception="ValueError: x")).exception == ("ValueError",)
    assert the_loss(scene.with_exit(0, exception="x" * 500)).exception == ("x" * 120,)
    told = scene.with_exit(0, exception="Mine: x", kinds=("Mine", "ValueError"))
    assert the_loss(told).exception == ("Mine", "ValueError")


def test_the_end_of_a_process_tells_what_rules_ask_for() -> None:
    scene = a_run().running().with_exit(0, raised_at="loss.py:88", last_lines=("a", "b"), age=3.0)
    loss = the_loss(scene)
    assert (loss.container, loss.raised_at, loss.last_lines) == (
        "w",
        "loss.py:88",
        ("a", "b"),
    )
    assert (loss.signalled, loss.age) == (False, seconds(3))
    assert the_loss(scene.with_exit(0, signal=11)).signalled


def test_a_long_exception_is_cut() -> None:
    assert len(the_loss(a_run().running().with_exit(0, exception="x" * 5000)).message) == 1000


@pytest.mark.parametrize(
    "exception",
    [
        "DistNetworkError: EADDRINUSE",
        "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server",
    ],
)
def test_a_port_in_use_before_the_first_step_is_a_failed_rendezvous(exception: str) -> None:
    scene = a_run().running().with_all(steps=(None,))
    scene = scene.with_exit(0, exception=exception)
    assert the_loss(scene).cause is Cause.RENDEZVOUS_FAILED


def test_a_port_in_use_after_the_first_step_is_an_error_of_the_script() -> None:
    scene = a_run().running().with_all(steps=(None,)).with_agent(1, steps=(4,))
    scene = scene.with_exit(0, exception="DistNetworkError: EADDRINUSE")
    assert the_loss(scene).cause is Cause.APP_ERROR


def test_an_ordered_end_of_a_process_is_no_loss() -> None:
    scene = a_run().running().with_exit(0, signal=9, ordered=True)
    assert losses_of(scene.view) == ()


def test_a_rank_that_ended_well_while_others_work_is_no_loss() -> None:
    assert losses_of(a_run().running().with_exit(0, code=0).view) == ()


def test_what_the_world_knows_comes_before_what_the_agent_says() -> None:
    scene = a_run().running().with_exit(0).lost(0, Cause.NODE_LOST, "node a is gone")
    loss = the_loss(scene)
    assert (loss.cause, loss.message) == (Cause.NODE_LOST, "node a is gone")
    assert loss.age == seconds(2)


def test_what_the_world_knows_of_a_container_is_kept() -> None:
    known = WorkerLoss(cause=Cause.START_FAILED, message="m", container="fetch", exit_code=7)
    loss = the_loss(a_run().running().with_worker(0, phase="Ended", loss=known))
    assert (loss.container, loss.exit_code) == ("fetch", 7)


def test_a_worker_that_was_deleted_by_force_was_taken_away_like_any_other() -> None:
    loss = the_loss(a_run().running().without(1))
    assert loss.cause is Cause.PREEMPTED
    assert loss.message == "worker run-1-1 was deleted or replaced from outside"


@pytest.mark.case(
    "nodes", "A worker's pod vanishes, or another pod takes its name", counted="maxPreemptions"
)
def test_a_worker_that_somebody_recreated_under_its_name_is_a_loss() -> None:
    scene = a_run().running().with_agent(1, agent="another one", attempt=0)
    assert the_loss(scene).message == "worker run-1-1 was deleted or replaced from outside"


def test_a_worker_that_ended_without_an_order_is_a_loss_with_its_exit_code() -> None:
    loss = the_loss(a_run().running().with_worker(0, phase="Ended", exit_code=3))
    assert loss.message == "worker run-0-1 ended with exit code 3 without an order"
    assert (loss.cause, loss.exit_code, loss.age) == (Cause.UNKNOWN, 3, seconds(0))


def test_a_worker_that_ended_without_a_known_code_is_a_loss() -> None:
    loss = the_loss(a_run().running().with_worker(0, phase="Ended"))
    assert loss.message == "worker run-0-1 ended without an order"


def test_an_ended_worker_whose_process_failed_before_is_explained_by_the_process() -> None:
    scene = a_run().running().with_exit(0, signal=9).with_worker(0, phase="Ended")
    assert the_loss(scene).message == "rank 0 was killed by SIGKILL"


def test_a_worker_that_ended_after_a_notice_was_preempted() -> None:
    loss = the_loss(a_run().running().noticed(0).with_worker(0, phase="Ended"))
    assert loss.cause is Cause.PREEMPTED
    assert loss.message == "worker run-0-1 was taken away after a notice (spot)"


def test_a_worker_that_ended_after_a_sigterm_was_lost_when_it_got_it() -> None:
    scene = a_run().running().got_sigterm(0).with_worker(0, phase="Ended", exit_code=143)
    loss = the_loss(scene)
    assert (loss.cause, loss.age) == (Cause.TERMINATED, seconds(2))


def test_a_process_killed_under_notice_was_preempted() -> None:
    assert the_loss(a_run().running().noticed(0).with_exit(0, signal=9)).cause is Cause.PREEMPTED


def test_a_process_aborted_under_notice_is_no_consequence_of_another_loss() -> None:
    lines = ("[E] Watchdog caught collective operation timeout",)
    scene = a_run().running().with_exit(0, signal=6, last_lines=lines)
    assert the_loss(scene).collateral
    loss = the_loss(scene.noticed(0))
    assert (loss.cause, loss.collateral) == (Cause.PREEMPTED, False)
    assert loss.known_by == "a notice that came before the signal"


def test_a_process_that_ran_out_of_memory_under_notice_ran_out_of_memory() -> None:
    scene = a_run().running().noticed(0).with_exit(0, oom=True)
    assert the_loss(scene).cause is Cause.OUT_OF_MEMORY


def test_an_exception_under_notice_is_an_error_of_the_script() -> None:
    assert the_loss(a_run().running().noticed(0).with_exit(0)).cause is Cause.APP_ERROR


def test_a_worker_that_does_not_start_within_its_timeout_is_a_loss() -> None:
    scene = a_run(start_timeout=seconds(50)).running().with_agent(1, attempt=0, phase="Idle")
    loss = the_loss(scene)
    assert loss.cause is Cause.START_FAILED
    assert loss.message == (
        "worker run-1-1 did not start attempt 1 within health.startTimeout (50 s)"
    )
    assert loss.age == seconds(60)


def test_a_worker_that_a_new_operator_hears_and_that_does_not_start_is_a_failed_start() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(21)
    loss = the_loss(scene.with_agent(1, attempt=0, phase="Idle"))
    assert (loss.cause, loss.age) == (Cause.START_FAILED, seconds(21))


def test_a_worker_has_its_whole_timeout_to_start() -> None:
    scene = a_run(start_timeout=seconds(60)).running().with_agent(1, attempt=0, phase="Idle")
    assert losses_of(scene.view) == ()


def test_a_new_operator_listens_for_the_whole_timeout_before_it_misses_a_worker() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(15).unheard(0)
    assert losses_of(scene.view) == ()


@pytest.mark.case("operator", "Workers do not reach the operators that took over")
def test_a_worker_that_ran_before_this_operator_led_may_train_though_it_is_never_heard() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(900).unheard(0)
    assert losses_of(scene.view) == ()
    assert losses_of(scene.with_worker(0, running_for=seconds(899)).view) != ()


def test_a_worker_that_is_not_heard_after_a_take_over_is_lost_with_what_else_is_known() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(900).unheard(0)
    assert the_loss(scene.with_worker(0, phase="Ended", exit_code=137)).cause is Cause.UNKNOWN
    assert the_loss(scene.with_worker(0, suspect_node="NotReady")).cause is Cause.NODE_LOST
    assert the_loss(scene.without(0)).cause is Cause.PREEMPTED


def test_silence_began_when_its_worker_was_heard_last() -> None:
    scene = a_run().running().silent(0, 100)
    assert the_loss(scene).age == seconds(100)
    loss = the_loss(scene.with_worker(0, suspect_node="NotReady"))
    assert (loss.cause, loss.age) == (Cause.NODE_LOST, seconds(100))


def test_a_worker_that_was_never_heard_is_lost_with_a_node_that_is_not_heard_either() -> None:
    scene = a_run().running().listening(100).unheard(0)
    loss = the_loss(scene.with_worker(0, suspect_node="NotReady", age=seconds(900)))
    assert (loss.cause, loss.age) == (Cause.NODE_LOST, seconds(100))
    assert loss.message == (
        "worker run-0-1 has sent no heartbeat for 100 s, and its node node-0 looks lost: NotReady"
    )


def test_of_several_processes_the_one_that_failed_first_explains_the_worker() -> None:
    scene = a_run(processes_per_worker=2).running().with_exit(0)
    agent = scene.worker(0).agent
    assert agent is not None
    (end,) = agent.exits
    first = type(end)(rank=1, code=2, age=5.0)
    assert the_loss(scene.with_agent(0, exits=(end, first))).rank == 1


WORST_FIRST: list[dict[str, object]] = [
    {"oom": True},
    {"code": 1, "exception": "trainrun.FatalError: the data is gone"},
    {"signal": 11},
    {"code": 1, "exception": "ValueError: bad batch"},
    {"code": 1, "exception": "RuntimeError: Connection reset by peer"},
]
"""Ends of processes of one worker: who of them explains it, before all that follow."""


@pytest.mark.parametrize("worse", range(len(WORST_FIRST) - 1))
@pytest.mark.parametrize("first", [True, False])
def test_of_several_processes_the_one_that_says_most_explains_the_worker(
    worse: int, first: bool
) -> None:
    scene = a_run(processes_per_worker=2).running()
    age = 9.0 if first else 1.0
    said = scene.with_exit(0, age=age, **WORST_FIRST[worse]).worker(0).agent
    for less in WORST_FIRST[worse + 1 :]:
        other = scene.with_exit(0, age=5.0, **less).worker(0).agent
        assert said is not None
        assert other is not None
        beside = replace(other.exits[0], rank=1)
        for exits in ((*said.exits, beside), (beside, *said.exits)):
            assert the_loss(scene.with_agent(0, exits=exits)).rank == 0


def test_a_notice_that_came_after_the_signal_explains_nothing() -> None:
    scene = a_run().running().noticed(0, age=1.0)
    assert the_loss(scene.with_exit(0, signal=9, age=2.0)).cause is Cause.APP_ERROR
    assert the_loss(scene.with_exit(0, signal=9, age=1.0)).cause is Cause.PREEMPTED


def test_of_several_ranks_that_have_left_the_first_is_named() -> None:
    broken = "RuntimeError: Connection closed by peer"
    scene = a_run(replicas=4).running().with_exit(0, code=1, exception=broken, age=2.0)
    left = scene.with_exit(1, code=0, age=3.0).with_exit(2, code=0, age=9.0)
    assert the_loss(left.with_exit(3, code=0, age=5.0)).message.endswith(
        "; rank 2 had ended with exit code 0 before"
    )


def test_a_worker_that_is_gone_is_named() -> None:
    loss = the_loss(a_run().running().without(1))
    assert (loss.slot, loss.worker, loss.age) == (1, "run-1-1", seconds(0))


def test_the_node_is_known_from_the_agent_where_the_world_does_not_tell_it() -> None:
    scene = a_run().running().with_exit(1)
    assert the_loss(scene.with_worker(1, node="")).node == "node-1"
    assert the_loss(scene.with_agent(1, node="elsewhere")).node == "node-1"


@pytest.mark.case(
    "processes", "A rank ends with 0 while others need it in a collective", counted="maxFailures"
)
def test_a_collective_that_breaks_after_a_rank_has_left_names_that_rank() -> None:
    broken = "RuntimeError: Connection closed by peer"
    scene = a_run(replicas=3).running().with_exit(0, code=1, exception=broken, age=2.0)
    alone = the_loss(scene).message
    assert alone == f"rank 0 exited with code 1: {broken}"
    left = scene.with_exit(2, code=0, age=5.0)
    assert the_loss(left).message == f"{alone}; rank 2 had ended with exit code 0 before"
    for later in (1.0, 2.0):
        assert the_loss(scene.with_exit(2, code=0, age=later)).message == alone


def test_a_rank_that_failed_before_a_collective_broke_has_not_left_well() -> None:
    scene = a_run(replicas=3).running().with_exit(2, code=3, age=5.0)
    scene = scene.with_exit(0, code=1, exception="RuntimeError: Connection reset", age=2.0)
    broken, _ = losses_of(scene.view)
    assert broken.collateral
    assert "had ended" not in broken.message


@pytest.mark.case(
    "processes",
    "Other ranks die of broken collectives; they do not hide the culprit",
    counted="one incident",
)
@pytest.mark.parametrize(
    "victim",
    [
        {"code": 1, "exception": "RuntimeError: Connection reset by peer"},
        {"signal": 6, "last_lines": ("[E] Watchdog caught collective operation timeout",)},
    ],
)
def test_within_a_worker_a_victim_that_fell_first_does_not_hide_the_culprit(
    victim: dict[str, object],
) -> None:
    scene = a_run(processes_per_worker=2).running().with_exit(0, age=9.0, **victim)
    agent = scene.worker(0).agent
    assert agent is not None
    culprit = type(agent.exits[0])(rank=1, code=2, exception="ValueError: x", age=1.0)
    assert the_loss(scene.with_agent(0, exits=(*agent.exits, culprit))).rank == 1


def test_what_becomes_of_a_worker_that_we_deleted_is_no_loss() -> None:
    scene = a_run().running().ended(an_incident(), dismissed="1")
    assert losses_of(scene.without(0).view) == ()
    assert losses_of(scene.noticed(0).with_worker(0, phase="Ended").view) == ()
    assert losses_of(scene.silent(0, 100).view) == ()
    assert the_loss(scene.without(1)).slot == 1


def test_a_worker_that_we_deleted_may_have_been_lost_with_its_node() -> None:
    scene = a_run(replicas=3).running().ended(an_incident(), dismissed="2")
    assert the_loss(scene.lost(1, Cause.NODE_LOST)).cause is Cause.NODE_LOST
    cut_off = scene.silent(1, 100).with_worker(1, suspect_node="NotReady")
    assert the_loss(cut_off).cause is Cause.NODE_LOST


def test_a_worker_that_vanishes_while_the_gang_is_gathered_is_a_loss() -> None:
    assert the_loss(a_run().running().ended().without(0)).slot == 0


REFUSED, AWAY, OTHER = (
    Problem(type=type_, reason=reason, message="m")
    for type_, reason in (
        ("StorageUnavailable", "Refused"),
        ("StorageUnavailable", "Away"),
        ("SaveWaiting", "Refused"),
    )
)


@pytest.mark.case(
    "storage",
    "The store refuses while processes load their checkpoint",
    counted="maxFailures after three in a row",
)
@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ((OTHER, REFUSED), Cause.STORAGE_REFUSED),
        ((AWAY,), Cause.STORAGE_ERROR),
        ((OTHER,), Cause.STORAGE_ERROR),
    ],
)
def test_a_store_that_refuses_a_process_is_told_from_one_that_is_away(
    told: tuple[Problem, ...], cause: Cause
) -> None:
    text = "AgentRefused: checkpoint step-3 cannot be read: 403"
    scene = a_run().running().with_exit(1, code=1, exception=text)
    assert the_loss(scene.with_agent(1, problems=told)).cause is cause
