"""A checkpoint that reads wrongly on one node: who reads it again, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, seconds
from trainrun.contract.agent_state import Rechecked, Suspect
from trainrun.contract.answer import Recheck
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import MAX_DISTRUSTED, Distrusted
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker

HANDED = CheckpointId(attempt=1, step=30)
FILE = "worker-00001/model.pt"
ORDER = Recheck(attempt=2, id=HANDED, files=(FILE,))
MANIFEST = Recheck(attempt=3, id=HANDED, files=("manifest.json",))


def a_suspect(*files: str, checkpoint: CheckpointId = HANDED) -> Suspect:
    return Suspect(id=checkpoint, files=files or (FILE,), message=f"{FILE}: CRC32 differs")


def suspecting(slot: int = 0, **config: object) -> WorkerObservation:
    scene = a_run(**({"replicas": 3, "max_failures": 0} | config)).running(2, resume=(1, 30))
    return scene.with_agent(slot, suspect=a_suspect())


def orders(scene: WorkerObservation) -> dict[str, Recheck]:
    return {name: a.recheck for name, a in scene.plan.answers.items() if a.recheck is not None}


def warning(scene: WorkerObservation) -> tuple[str, str]:
    """Reason and message, once the status that tells it is written."""
    found = scene.plan.status.condition("CheckpointSuspect")
    assert found is not None
    return found.reason, found.message


def told(scene: WorkerObservation) -> WorkerObservation:
    """Its warning is written: the pass after that acts."""
    assert scene.plan.transition
    return scene.after()


def settled(scene: WorkerObservation) -> WorkerObservation:
    """Whatever is written first is written: the pass after that acts."""
    while scene.plan.transition:
        scene = scene.after()
    return scene


# --------------------------------------------------------------------- while an attempt runs


@pytest.mark.case(
    "storage",
    "A bit has flipped in a checkpoint's file",
    counted="maxFailures after three in a row",
)
def test_an_agent_on_another_node_reads_again_and_the_run_says_so() -> None:
    scene = suspecting()
    assert [(e.type, e.reason) for e in scene.plan.events] == [("Warning", "CheckpointSuspect")]
    assert warning(scene) == (
        "ReadAgain",
        "checkpoint step-000000030-attempt-1 reads wrongly on node node-0: worker-00001/model.pt: "
        "CRC32 differs; worker run-1-1 on node node-1 reads it again before anything is set aside, "
        "and no process gets it meanwhile",
    )
    assert orders(told(scene)) == {"run-1-1": ORDER}


def test_the_suspects_of_all_workers_are_read_again_by_one() -> None:
    scene = suspecting().with_agent(2, suspect=a_suspect("worker-00000/x.pt"))
    both = replace(ORDER, files=("worker-00000/x.pt", FILE))
    assert orders(told(scene)) == {"run-1-1": both}


def test_a_worker_on_the_same_node_is_no_second_reader() -> None:
    scene = suspecting().with_worker(1, node="node-0")
    assert orders(told(scene)) == {"run-2-1": ORDER}


def test_a_node_that_is_not_trusted_is_no_second_reader() -> None:
    scene = suspecting().with_status(distrusted=(Distrusted(node="node-1"),))
    assert orders(told(scene)) == {"run-2-1": ORDER}


def test_a_worker_that_was_not_heard_is_asked_last() -> None:
    scene = suspecting().unheard(1)
    assert orders(told(scene)) == {"run-2-1": ORDER}


def test_others_that_have_not_called_yet_are_waited_for() -> None:
    """A node alone would condemn it on its own word."""
    scene = told(suspecting(replicas=2).unheard(1))
    assert orders(scene) == {}
    assert "run-0-1" in scene.plan.answers


def test_a_suspect_that_nobody_was_handed_is_not_looked_at() -> None:
    other = a_suspect(checkpoint=CheckpointId(attempt=1, step=20))
    scene = suspecting().with_agent(0, suspect=other)
    assert orders(scene) == {}
    assert scene.plan.reason == "Running"


@pytest.mark.case(
    "storage", "One node reads a checkpoint wrongly", counted="maxFailures after three in a row"
)
def test_a_worker_whose_node_misreads_is_replaced_and_its_node_remembered() -> None:
    scene = suspecting().with_agent(1, rechecked=Rechecked(recheck=ORDER, good=True))
    plan = scene.plan
    assert plan.transition
    incident = plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.budget, incident.worker) == ("Misread", "none", "run-0-1")
    assert incident.node == "node-0"
    assert incident.message == (
        "checkpoint step-000000030-attempt-1 reads wrongly on node node-0, and well on node "
        "node-1: worker-00001/model.pt: CRC32 differs"
    )
    assert plan.status.distrusted == (Distrusted(node="node-0"),)
    for slot in range(3):
        scene = scene.with_agent(slot, phase="Idle")
    ended = settled(scene.after(plan).without_backoff()).plan
    assert [(a.name, a.reason) for a in ended.actions if isinstance(a, DeleteWorker)] == [
        ("run-0-1", "it misreads a checkpoint that another node reads correctly")
    ]
    [made] = [a for a in ended.actions if isinstance(a, CreateWorker)]
    assert (made.slot, made.avoid) == (0, ("node-0",))


def test_all_workers_that_misread_are_replaced() -> None:
    scene = suspecting().with_worker(1, node="node-0").with_agent(1, suspect=a_suspect())
    scene = scene.with_agent(2, rechecked=Rechecked(recheck=ORDER, good=True))
    plan = scene.plan
    for slot in range(3):
        scene = scene.with_agent(slot, phase="Idle")
    ended = settled(scene.after(plan).without_backoff()).plan
    gone = {a.name for a in ended.actions if isinstance(a, DeleteWorker)}
    assert gone == {"run-0-1", "run-1-1"}


def test_a_second_node_that_reads_it_wrongly_confirms_the_damage() -> None:
    done = Rechecked(recheck=ORDER, good=False, message="CRC32 differs")
    plan = suspecting().with_agent(1, rechecked=done).plan
    incident = plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.budget) == ("CheckpointDamaged", "none")
    assert incident.message == (
        "checkpoint step-000000030-attempt-1 is damaged: worker-00001/model.pt: CRC32 differs"
    )
    assert (incident.node, plan.status.distrusted) == ("", ())


def test_what_was_found_about_another_order_says_nothing() -> None:
    before = Rechecked(recheck=replace(ORDER, attempt=1), good=True)
    scene = told(suspecting().with_agent(1, rechecked=before))
    assert orders(scene) == {"run-1-1": ORDER}
    assert scene.plan.reason == "Running"


# --------------------------------------------------------------------- one node only


def test_with_one_node_one_checkpoint_falls_on_its_word() -> None:
    scene = suspecting(replicas=1)
    plan = scene.plan
    assert plan.status.distrusted == (Distrusted(node="node-0", but_for=HANDED),)
    assert (plan.reason, plan.status.phase) == ("NodeDistrusted", "Running")
    assert plan.message == (
        "checkpoint step-000000030-attempt-1 reads wrongly on node node-0: worker-00001/model.pt: "
        "CRC32 differs; no other node of the run can read it, so this node is believed, about "
        "this checkpoint only"
    )
    scene = told(scene)
    reason, message = warning(scene)
    assert reason == "ReadAgain"
    assert "; it reads it again before anything is set aside" in message
    scene = told(scene)
    assert orders(scene) == {"run-0-1": ORDER}
    plan = scene.with_agent(0, rechecked=Rechecked(recheck=ORDER, good=False)).plan
    assert plan.status.incident is not None
    assert plan.status.incident.cause == "CheckpointDamaged"
    assert plan.status.distrusted == scene.status.distrusted


@pytest.mark.case("storage", "A checkpoint reads wrongly, and no other node can read it")
def test_with_one_node_the_second_checkpoint_is_waited_for_with_the_remedy() -> None:
    scene = suspecting(replicas=1).with_status(distrusted=(Distrusted(node="node-0"),))
    assert warning(scene) == (
        "NoSecondReader",
        "checkpoint step-000000030-attempt-1 reads wrongly on node node-0: worker-00001/model.pt: "
        "CRC32 differs; one node alone is not believed, and no other node of the run can read it. "
        "Let a worker run on another node, or read it elsewhere with `trainrun checkpoints "
        "--verify`; if it is damaged, `trainrun checkpoints set-aside` makes the run continue from "
        "the one before",
    )
    scene = told(scene)
    assert orders(scene) == {}
    assert scene.plan.reason == "Running"


def test_a_node_whose_word_was_taken_is_not_believed_about_another_checkpoint() -> None:
    """Also when nobody has heard what it found: it may have set that checkpoint aside."""
    other = CheckpointId(attempt=1, step=40)
    scene = suspecting(replicas=1)
    scene = scene.with_status(distrusted=(Distrusted(node="node-0", but_for=other),))
    assert warning(scene)[0] == "NoSecondReader"


def test_a_node_alone_that_reads_it_well_the_second_time_is_waited_for() -> None:
    scene = told(suspecting(replicas=1))
    scene = told(scene.with_agent(0, rechecked=Rechecked(recheck=ORDER, good=True)))
    assert scene.plan.reason == "Running"
    assert warning(scene)[0] == "NoSecondReader"


def test_a_node_that_misreads_again_is_remembered_once() -> None:
    known = (Distrusted(node="node-0"),)
    scene = suspecting().with_status(distrusted=known)
    plan = scene.with_agent(1, rechecked=Rechecked(recheck=ORDER, good=True)).plan
    assert plan.status.incident is not None
    assert plan.status.distrusted == known


def test_the_nodes_remembered_are_bounded() -> None:
    known = tuple(Distrusted(node=f"old-{n}") for n in range(MAX_DISTRUSTED))
    scene = suspecting().with_status(distrusted=known)
    plan = scene.with_agent(1, rechecked=Rechecked(recheck=ORDER, good=True)).plan
    assert plan.status.distrusted == (*known[1:], Distrusted(node="node-0"))


# --------------------------------------------------------------------- before an attempt


def resolving(
    *, nodes: tuple[str, ...] = ("node-0", "node-1"), **fields: object
) -> WorkerObservation:
    """Slot 0's agent cannot read the manifest of the checkpoint to start from."""
    scene = a_run(replicas=len(nodes)).running(2).ended()
    for slot, node in enumerate(nodes):
        scene = scene.with_worker(slot, node=node)
    suspect = a_suspect("manifest.json")
    scene = scene.resolved(outcome="Suspect", suspect=suspect, message="x/manifest.json: empty")
    return scene.with_status(**fields)


def test_a_manifest_that_reads_wrongly_is_read_again_on_another_node() -> None:
    scene = resolving()
    assert warning(scene)[0] == "ReadAgain"
    scene = told(scene)
    assert scene.plan.reason == "CheckpointSuspect"
    assert orders(scene) == {"run-1-1": MANIFEST}
    assert scene.hold(0).resolve is not None


def test_a_worker_that_misreads_a_manifest_is_replaced_and_nothing_is_counted() -> None:
    scene = resolving().with_agent(1, rechecked=Rechecked(recheck=MANIFEST, good=True))
    plan = scene.plan
    assert (plan.reason, plan.status.distrusted) == (
        "NodeDistrusted",
        (Distrusted(node="node-0"),),
    )
    assert plan.message.startswith("checkpoint step-000000030-attempt-1 reads wrongly on node")
    after = settled(scene).plan
    assert [(a.name, a.reason) for a in after.actions if isinstance(a, DeleteWorker)] == [
        ("run-0-1", "it misreads a checkpoint that another node reads correctly")
    ]
    assert after.status.incident is None


def test_a_manifest_that_two_nodes_read_wrongly_is_asked_for_again() -> None:
    """By then it is set aside, and the store gives the one before."""
    scene = resolving().with_agent(1, rechecked=Rechecked(recheck=MANIFEST, good=False))
    assert (scene.plan.reason, scene.plan.message) == (
        "CheckpointSuspect",
        "x/manifest.json: empty",
    )
    assert scene.plan.status.condition("CheckpointSuspect") is None
    assert scene.hold(0).resolve is not None
    assert scene.plan.status.distrusted == ()


def test_a_manifest_may_fall_on_the_word_of_the_only_node_once() -> None:
    scene = resolving(nodes=("node-0",))
    taken = (Distrusted(node="node-0", but_for=HANDED),)
    assert (scene.plan.reason, scene.plan.status.distrusted) == ("NodeDistrusted", taken)
    scene = told(told(scene))
    assert orders(scene) == {"run-0-1": MANIFEST}
    scene = scene.with_agent(0, rechecked=Rechecked(recheck=MANIFEST, good=False))
    assert scene.plan.reason == "CheckpointSuspect"
    assert scene.hold(0).resolve is not None
    assert scene.after().plan.transition is False


def test_a_manifest_that_the_only_node_is_not_believed_about_is_waited_for() -> None:
    scene = resolving(nodes=("node-0",), distrusted=(Distrusted(node="node-0"),))
    assert warning(scene)[0] == "NoSecondReader"
    assert told(scene).plan.reason == "CheckpointSuspect"


def test_an_agent_that_names_no_suspect_is_waited_for() -> None:
    scene = a_run().running(2).ended().resolved(outcome="Suspect", message="it reads wrongly")
    assert (scene.plan.reason, scene.plan.message) == ("CheckpointSuspect", "it reads wrongly")


@pytest.mark.parametrize("fields", [{"deleting": True}, {"phase": "Pending"}, {"agent": None}])
def test_workers_that_go_or_are_not_heard_read_no_manifest(fields: dict[str, object]) -> None:
    scene = resolving().plus(a_worker(1, 2, agent=an_agent(1, 2), node="node-2"))
    scene = replace(scene, workers=tuple(w for w in scene.workers if w.name != "run-1-1"))
    scene = told(scene.plus(a_worker(1, 3, node="node-9", silent_for=seconds(1), **fields)))
    assert orders(scene) in ({"run-1-2": MANIFEST}, {})
    assert "run-1-3" not in orders(scene)
