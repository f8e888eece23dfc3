"""Copies of staged parts on other nodes: who makes them, of which step, and what a loss costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.core.run.test_in_place import crashed, told
from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, seconds
from trainrun.contract.agent_state import Held, Problem
from trainrun.contract.answer import Start
from trainrun.contract.staged_parts import CopiedPart, StagedStep
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.drain import still_flushing
from trainrun_operator.core.run.pairing import buddies

KEEPS = {"upload_every": seconds(600), "max_failures": 9, "buddy": True}


def on_nodes(*nodes: str, **config: object) -> WorkerObservation:
    """A running gang, a worker for each of these nodes."""
    scene = a_run(**KEEPS | {"replicas": len(nodes)} | config).running()
    for slot, node in enumerate(nodes):
        scene = scene.with_worker(slot, node=node).with_agent(slot, serves_tls=f"10.0.0.{slot}:7")
    return scene


def copy_of(slot: int, step: int, *, complete: bool = True, **fields: object) -> CopiedPart:
    return CopiedPart(slot=slot, step=step, ranks=(slot,), complete=complete, **fields)  # type: ignore[arg-type]


def copied(scene: WorkerObservation, step: int, *, but_for: int = -1) -> WorkerObservation:
    """Every buddy has its copy of a step, except the one of this slot."""
    for slot, buddy in buddies(scene.view).items():
        agent = scene.worker(buddy).agent
        assert agent is not None
        part = copy_of(slot, step, complete=slot != but_for)
        scene = scene.with_agent(buddy, copies=(*agent.copies, part))
    return scene


def order(scene: WorkerObservation, slot: int) -> Start:
    found = scene.answer(slot).order
    assert isinstance(found, Start)
    return found


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("ab", {0: 1, 1: 0}),
        ("abc", {0: 1, 1: 2, 2: 0}),
        ("aabb", {0: 2, 1: 3, 2: 0, 3: 1}),
        ("abab", {0: 1, 2: 3, 1: 0, 3: 2}),
        ("abbcc", {1: 3, 2: 4, 3: 0, 4: 1, 0: 2}),
        ("aab", {0: 2, 1: 2, 2: 1}),
        ("aaaabc", {0: 4, 1: 5, 2: 4, 3: 5, 4: 2, 5: 3}),
        ("aa", {}),
        ("a", {}),
    ],
)
def test_the_buddy_of_a_worker_is_on_another_node(nodes: str, expected: dict[int, int]) -> None:
    assert buddies(on_nodes(*nodes).view) == expected


def test_a_worker_of_which_no_node_is_known_has_no_buddy() -> None:
    scene = on_nodes("a", "b", "c").with_worker(1, node="").with_agent(1, node="")
    assert buddies(scene.view) == {0: 2, 2: 0}


def test_the_workers_of_a_large_node_share_the_buddies_on_a_small_one() -> None:
    copies = Counter(buddies(on_nodes(*"a" * 8, *"b" * 4).view).values())
    assert [copies[slot] for slot in range(8, 12)] == [2, 2, 2, 2]
    assert max(copies[slot] for slot in range(8)) == 1


def test_without_the_field_nobody_copies() -> None:
    assert buddies(on_nodes("a", "b", buddy=False).view) == {}
    assert buddies(on_nodes("a", "b", upload_every=None).view) == {}


def test_an_agent_is_told_whose_files_to_copy_and_of_which_step() -> None:
    scene = on_nodes("a", "b").staged_by_all(10)
    answer = scene.answer(0)
    assert answer.copy == 10
    assert [(p.slot, p.source.address) for p in order(scene, 0).partners] == [(1, "10.0.0.1:7")]
    assert answer.settings is not None
    assert answer.settings.buddy
    assert on_nodes("a", "b").answer(0).copy == -1


def test_all_copy_one_step_until_each_buddy_has_it() -> None:
    scene = copied(on_nodes("a", "b").staged_by_all(10), 10, but_for=1)
    scene = scene.staged_by_all(20).staged_by_all(30).staged_by_all(40)
    assert scene.answer(0).copy == 10
    assert scene.answer(0).drop == (20, 30), "the step that is copied stays"
    scene = copied(scene.with_all(copies=()), 10)
    assert (scene.answer(0).copy, scene.answer(0).copied) == (40, 10)
    assert scene.answer(0).drop == (20, 30), "so does the one that everybody has"
    scene = copied(scene, 40)
    assert (scene.answer(0).copy, scene.answer(0).copied) == (40, 40)
    assert scene.answer(0).drop == (10, 20)


def test_a_part_that_is_stored_need_not_be_copied() -> None:
    scene = on_nodes("a", "b").staged(0, 10, uploaded=True).staged(1, 10)
    scene = scene.with_agent(0, copies=(copy_of(1, 10),)).staged_by_all(20)
    assert (scene.answer(0).copy, scene.answer(0).copied) == (20, 10)


def test_a_leader_that_has_not_heard_every_worker_names_no_step() -> None:
    scene = copied(on_nodes("a", "b", "c").staged_by_all(10), 10).staged_by_all(20)
    assert scene.answer(0).copy == 20
    assert scene.unheard(2).answer(0).copy == -1


def test_nobody_waits_for_a_buddy_that_cannot_copy() -> None:
    scene = copied(on_nodes("a", "b").staged_by_all(10), 10, but_for=1).staged_by_all(20)
    problem = Problem(type="NoBuddy", reason="NoRoom", message="no room")
    scene = told(scene.with_agent(0, problems=(problem,)))
    assert scene.answer(0).copy == 20
    condition = scene.plan.status.condition("NoBuddy")
    assert condition is not None
    assert (condition.reason, condition.message) == ("NoRoom", "no room")


def test_a_whole_checkpoint_of_rank_0_is_copied_after_the_first_one_too() -> None:
    scene = on_nodes("a", "b", "c").staged(0, 10, whole=True)
    assert scene.answer(1).copy == 10
    assert [[p.slot for p in order(scene, slot).partners] for slot in range(3)] == [[], [0], []]
    scene = scene.with_agent(1, copies=(copy_of(0, 10, whole=True),))
    assert (scene.answer(1).copy, scene.answer(1).copied) == (10, 10)
    scene = scene.staged(0, 20, whole=True)
    assert (scene.answer(1).copy, scene.answer(1).copied) == (20, 10)
    assert lost(scene, 0).hold(1).flush == (10,)
    assert lost(scene, 0).hold(1).stand_in == (0,)


def test_a_whole_checkpoint_of_every_rank_is_copied_once_one_buddy_has_it() -> None:
    scene = on_nodes("a", "b").staged_by_all(10, whole=True)
    scene = scene.with_agent(0, copies=(copy_of(1, 10, whole=True),))
    assert scene.answer(0).copied == 10


def test_a_worker_that_serves_no_other_node_is_told_and_not_waited_for() -> None:
    scene = on_nodes("a", "b").with_agent(1, serves_tls="")
    assert scene.plan.status.condition("NoBuddy") is None, "its certificate may still come"
    scene = scene.staged_by_all(10)
    condition = scene.plan.status.condition("NoBuddy")
    assert condition is not None
    assert (condition.reason, condition.message) == (
        "NotCopied",
        "worker run-1-1 serves no other node, so no buddy copies what it has staged. Read its log, "
        "or set checkpoint.buddy: false",
    )
    scene = told(scene)
    assert not order(scene, 0).partners
    assert [p.slot for p in order(scene, 1).partners] == [0]
    scene = scene.with_agent(1, copies=(copy_of(0, 10),)).staged_by_all(20)
    assert (scene.answer(1).copy, scene.answer(1).copied) == (20, 10)
    silent = told(scene.with_all(serves_tls="", copies=()))
    assert (silent.answer(1).copy, silent.answer(1).copied) == (-1, -1)


def test_a_gang_on_one_node_says_that_it_has_no_buddies() -> None:
    condition = on_nodes("a", "a").plan.status.condition("NoBuddy")
    assert condition is not None
    assert (condition.reason, condition.message) == (
        "OneNode",
        "all workers are on node a, so none has a buddy on another node. Spread them "
        "(topologySpreadConstraints), or set checkpoint.buddy: false",
    )
    assert on_nodes("a", "b").plan.status.condition("NoBuddy") is None
    assert on_nodes("a", "a", buddy=False).plan.status.condition("NoBuddy") is None


def lost(scene: WorkerObservation, *slots: int) -> WorkerObservation:
    for slot in slots:
        scene = scene.lost(slot, Cause.NODE_LOST)
    return told(scene)


def test_the_part_of_a_lost_worker_is_stored_by_its_buddy() -> None:
    scene = lost(copied(on_nodes("a", "b").staged_by_all(10), 10).staged_by_all(20), 1)
    hold = scene.hold(0)
    assert (hold.flush, hold.stand_in, hold.in_place) == ((10,), (1,), False)
    uploaded = scene.with_agent(0, copies=(copy_of(1, 10, uploaded=True),))
    assert [(s.step, s.slots) for s in uploaded.answer(0).steps] == [(10, (1,)), (20, ())]


def test_a_worker_that_does_not_know_yet_that_it_stands_in_has_not_flushed() -> None:
    scene = lost(copied(on_nodes("a", "b", "c").staged_by_all(10), 10), 1)
    assert [scene.hold(slot).stand_in for slot in (0, 2)] == [(), (1,)]
    for slot in (0, 2):
        scene = scene.with_agent(slot, phase="Idle")
    assert [w.slot for w in still_flushing(scene.view)] == [2]
    knows = replace(scene.held, stand_in=(1,))
    assert not still_flushing(scene.with_agent(2, phase="Idle", held=knows).view)


def test_a_worker_that_is_lost_with_its_buddy_costs_the_steps_since_the_upload() -> None:
    scene = copied(on_nodes("a", "b", "c").staged_by_all(10), 10)
    assert lost(scene, 1, 2).hold(0).flush == ()
    assert lost(scene, 0, 1).hold(2).flush == ()  # 1 is the buddy of 0
    assert lost(copied(on_nodes(*"aabb").staged_by_all(10), 10), 0, 1).hold(2).flush == (10,)


def test_a_crash_with_all_workers_left_needs_no_copy() -> None:
    scene = crashed(copied(on_nodes("a", "b").staged_by_all(10), 10).staged_by_all(20))
    hold = scene.hold(0)
    assert (hold.flush, hold.stand_in, hold.in_place) == ((20,), (), True)


def test_what_a_buddy_has_copied_counts_although_the_lost_worker_never_told_of_it() -> None:
    scene = on_nodes("a", "b").staged(0, 10).with_agent(0, copies=(copy_of(1, 10),))
    assert lost(scene, 1).hold(0).flush == (10,)


def test_a_worker_whose_pod_is_gone_is_nobodys_buddy() -> None:
    assert buddies(on_nodes("a", "b", "c").without(1).view) == {0: 2, 2: 0}


def test_a_copy_of_a_step_that_was_dropped_does_not_bring_it_back() -> None:
    scene = copied(on_nodes("a", "b").staged_by_all(20), 10).with_agent(1, dropped=(10,))
    assert [step.step for step in scene.answer(0).steps] == [20]
    assert scene.answer(0).copied == -1


def test_the_copy_of_a_lost_worker_was_given_up_when_its_replacement_could_not_start() -> None:
    scene = lost(copied(on_nodes("a", "b").staged_by_all(10), 10), 1)
    assert scene.hold(0).stand_in == (1,)
    tries = (
        replace(a_worker(1, number, phase="Ended", exit_code=1), age=seconds(0.5))
        for number in (2, 3, 4)
    )
    scene = scene.after(passed=1).plus(*tries)
    assert scene.plan.reason == "StartFailed"
    scene = told(scene.after(scene.plan))
    hold = scene.hold(0)
    assert (hold.attempt, hold.flush, hold.stand_in) == (3, (10,), (1,))
    knows = Held(attempt=3, flush=(10,))
    assert still_flushing(scene.with_agent(0, phase="Idle", held=knows).view)
    knows = replace(knows, stand_in=(1,))
    assert not still_flushing(scene.with_agent(0, phase="Idle", held=knows).view)


@pytest.mark.parametrize("max_pending", [1, 3])
def test_while_the_store_is_away_the_disks_hold_a_bounded_number_of_steps(max_pending: int) -> None:
    config = {"max_pending": max_pending, "upload_every": seconds(60)}
    scene = on_nodes("a", "b", **config)
    due: dict[int, bool] = {}  # by step on the disks
    made: set[int] = set()
    most = 0
    for step in range(10, 900, 10):  # a save every ten seconds
        due[step] = False
        for slot, other in ((0, 1), (1, 0)):
            entries = (
                StagedStep(step=s, ranks=(slot,), complete=True, due=due[s], age=float(step - s))
                for s in due
            )
            copies = tuple(copy_of(other, s, complete=s < step - 10) for s in sorted(made))
            scene = scene.with_agent(
                slot, staged=tuple(entries), copies=copies, steps=(step,), spawned=float(step)
            )
        answer = scene.answer(0)
        most = max(most, len(due))
        made = {s for s in (answer.copy, answer.copied) if s in due}
        due = {s: due[s] or s in answer.upload for s in due if s not in answer.drop}
        assert step in due, "the newest stays"
        assert answer.copied < 0 or answer.copied in due, "so does what every buddy has"
    assert sum(due.values()) == max_pending
    assert most == max_pending + 4, "one more than stays: it has just been written"


def test_a_start_that_a_buddy_made_possible_is_told_so() -> None:
    scene = lost(copied(on_nodes("a", "b").staged_by_all(10), 10), 1)
    scene = scene.with_agent(0, phase="Idle", copies=(copy_of(1, 10, uploaded=True),))
    stored = replace(scene.held, stand_in=(1,))
    new = a_worker(1, 2, agent=an_agent(1, 2, phase="Idle", held=scene.held))
    scene = scene.plus(new).resolved((1, 10)).with_agent(0, held=stored)
    assert scene.plan.reason == "Started", scene.plan.message
    chapter = scene.plan.status.chapter
    assert chapter is not None
    assert chapter.resumed_via == "Buddies"
