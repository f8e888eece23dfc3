"""Several trainings instead of one: when it is told, and which verdict follows."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.evidence import RankConnections
from trainrun_operator.core.run.warnings import separate

UNMET = RankConnections()
MET = RankConnections(known=True)


def ranks(*meetings: RankConnections | None, spawned: float = 61.0) -> WorkerObservation:
    """A run whose workers have one rank each."""
    scene = a_run(replicas=len(meetings)).running()
    for slot, meeting in enumerate(meetings):
        scene = scene.with_agent(slot, meeting=meeting, spawned=spawned)
    return scene


def told(scene: WorkerObservation) -> tuple[str, str]:
    found = scene.plan.status.condition("SeparateTrainings")
    return ("", "") if found is None else (found.reason, found.message)


def lead(*slots: int) -> tuple[RankConnections, ...]:
    return tuple(RankConnections(leaders=(slot,), launcher="torchrun") for slot in slots)


@pytest.mark.case(
    "processes",
    "A launcher starts a group of its own in several processes",
    counted="the run fails",
)
def test_two_launchers_in_one_gang_are_told_at_once_and_fail_the_run_at_its_end() -> None:
    """Two trainings wrote the same files, and the run succeeded."""
    scene = ranks(*lead(0, 1), spawned=2.0)
    message = (
        "2 of the 2 processes have a rank 0 of their own, started by torchrun: these are separate "
        "trainings, which write the same files. Start the command with torchrun or python, "
        "without a shell or script that starts a launcher, or set "
        "workers.independentRanks: true if this is intended"
    )
    assert told(scene) == ("TwoLeaders", message)
    assert [(e.type, e.reason) for e in scene.plan.events] == [("Warning", "SeparateTrainings")]
    plan = scene.after(scene.plan).all_done().plan
    assert (plan.status.phase, plan.reason, plan.message) == (
        "Failed",
        "SeparateTrainings",
        message,
    )
    assert plan.status.failures.counted == 0


def test_a_launcher_whose_group_spans_the_workers_is_none_of_several() -> None:
    scene = ranks(RankConnections(), *lead(1))
    assert told(scene) == ("", "")
    assert scene.all_done().plan.reason == "Succeeded"


@pytest.mark.case("processes", "None of several processes meets another")
def test_processes_that_never_meet_are_told_so_after_a_minute_and_do_not_just_succeed() -> None:
    scene = ranks(UNMET, UNMET, spawned=59.0)
    assert told(scene) == ("", "")
    scene = ranks(UNMET, UNMET)
    reason, message = told(scene)
    assert reason == "NeverMet"
    assert message == (
        "none of the 2 processes has opened MASTER_PORT (20000) or called trainrun, so each may "
        "train alone and write the same files. Let the script create its group from the "
        "environment (init_process_group with env://), or set workers.independentRanks: true if "
        "this is intended"
    )
    plan = scene.after(scene.plan).all_done().plan
    assert (plan.status.phase, plan.reason) == ("Succeeded", "NeverMet")
    assert plan.message == f"all 2 processes ended with exit code 0, but {message}"
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "NeverMet")]
    over = scene.after(scene.plan).all_done()
    assert told(over.after(over.plan)) == ("NeverMet", message)


def test_processes_that_are_each_alone_in_mpi_fail_the_run() -> None:
    scene = ranks(RankConnections(mpi=True), RankConnections(mpi=True))
    reason, message = told(scene)
    assert reason == "AloneInMpi"
    assert message.startswith("each of the 2 processes has loaded MPI without mpirun, so each is")
    plan = scene.after(scene.plan).all_done().plan
    assert (plan.status.phase, plan.reason) == ("Failed", "SeparateTrainings")


@pytest.mark.parametrize(
    "scene",
    [
        ranks(UNMET, MET),
        ranks(*lead(0, 1), MET),
        ranks(UNMET, RankConnections(elsewhere=True)),
        ranks(*lead(0, 1), RankConnections(elsewhere=True)),
        ranks(UNMET, RankConnections(placed=True)),
        ranks(UNMET, None),
        ranks(None),
        ranks(UNMET, UNMET).with_config(independent_ranks=True),
        ranks(*lead(0, 1)).with_config(independent_ranks=True),
        ranks(UNMET, UNMET).with_status(met=True),
    ],
)
def test_those_that_meet_or_of_which_nobody_knows_it_succeed(scene: WorkerObservation) -> None:
    assert told(scene) == ("", "")
    plan = scene.after(scene.plan).all_done().plan
    assert (plan.status.phase, plan.reason) == ("Succeeded", "Succeeded")


def test_what_has_met_in_one_attempt_need_not_meet_in_the_next() -> None:
    """A script that found its work done returned at once."""
    scene = ranks(UNMET, MET)
    assert scene.plan.status.met
    scene = ranks(UNMET, UNMET).with_status(met=scene.plan.status.met)
    assert scene.all_done().plan.reason == "Succeeded"


def test_it_is_taken_back_when_they_meet_after_all() -> None:
    scene = ranks(UNMET, UNMET)
    scene = scene.after(scene.plan)
    assert told(scene)[0] == "NeverMet"
    assert told(scene.with_agent(1, meeting=MET)) == ("", "")


def test_a_new_leader_that_has_not_heard_all_agents_neither_tells_it_nor_takes_it_back() -> None:
    scene = ranks(UNMET, UNMET)
    assert told(scene.unheard(1)) == ("", "")
    assert told(scene.after(scene.plan).unheard(1))[0] == "NeverMet"


def test_it_goes_with_the_attempt() -> None:
    scene = ranks(UNMET, UNMET)
    scene = scene.after(scene.plan).with_exit(0, code=1)
    scene = scene.after(scene.plan)
    assert told(scene) == ("", "")


def test_a_launcher_without_a_name_is_left_out() -> None:
    _, message = separate(ranks(RankConnections(leaders=(0,)), RankConnections(leaders=(1,))).view)
    assert message.startswith("2 of the 2 processes have a rank 0 of their own: these are")
