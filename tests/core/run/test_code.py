"""Ranks of one attempt that run different code: a ConfigMap was edited while the gang trained."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_new_run, a_run
from trainrun.contract.evidence import CodeFile
from trainrun_operator.api.run.status import Condition


def code(*digests: str) -> tuple[CodeFile, ...]:
    """Of train.py and, where there are two, of model.py."""
    names = ("train.py", "model.py")
    return tuple(
        CodeFile(path=f"/code/{name}", digest=digest)
        for name, digest in zip(names, digests, strict=False)
    )


def told(scene: WorkerObservation) -> Condition | None:
    return scene.plan.status.condition("CodeDiffers")


REMEDY = (
    ": the ranks of one attempt run different code. Give changed code a new name in "
    "workers.template (of the ConfigMap, of the image), so that all workers are replaced"
)


@pytest.mark.case("nodes", "The script's ConfigMap or image tag changes under a gang")
def test_a_replaced_worker_has_the_edited_script_and_it_is_told_before_the_attempt_starts() -> None:
    """The survivors ran the old code for ever beside the new one's, without a word."""
    scene = a_new_run(replicas=3).waiting().with_all(code=code("old"))
    scene = scene.with_agent(2, code=code("new"))
    plan = scene.plan
    text = (
        "rank 2 (worker run-2-1) has a different /code/train.py than rank 0 (worker run-0-1)"
        f"{REMEDY}"
    )
    assert [(e.type, e.reason, e.message) for e in plan.events if e.type == "Warning"] == [
        ("Warning", "CodeDiffers", text)
    ]
    assert plan.status.attempt == 0
    started = scene.after(plan).resolved()
    assert started.plan.status.attempt == 1, "nothing waits for it"
    found = told(started)
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "FilesDiffer", text)


def test_the_larger_part_of_the_gang_is_what_others_differ_from() -> None:
    scene = a_run(replicas=4, processes_per_worker=2).running().with_all(code=code("new", "b"))
    scene = scene.with_agent(0, code=code("old", "a")).with_agent(3, code=code("old"))
    found = told(scene)
    assert found is not None
    assert found.message == (
        "ranks 0, 1, 6, 7 (workers run-0-1, run-3-1) have a different /code/model.py, "
        f"/code/train.py than ranks 2, 3 (worker run-1-1){REMEDY}"
    )


def test_of_many_files_and_workers_the_first_ones_are_named() -> None:
    many = tuple(CodeFile(path=f"/code/{it}.py", digest="new") for it in range(9))
    scene = a_run(replicas=12).running().with_all(code=code("old"))
    for slot in range(5):
        scene = scene.with_agent(slot, code=many)
    found = told(scene)
    assert found is not None
    assert "(workers run-0-1, run-1-1, run-2-1, run-3-1, ...) have a different /code/0.py, " in (
        found.message
    )
    assert "/code/3.py, ... than rank 5 (worker run-5-1)" in found.message


@pytest.mark.parametrize("unknown", [None, ()])
def test_who_has_seen_no_script_differs_from_nobody(unknown: tuple[CodeFile, ...] | None) -> None:
    """Its agent has not looked yet, or the command names none."""
    scene = a_run(replicas=3).running().with_all(code=code("old")).with_agent(1, code=unknown)
    assert told(scene) is None


def test_it_stays_until_all_workers_have_shown_the_same() -> None:
    scene = a_run(replicas=2).running().with_all(code=code("old")).with_agent(1, code=code("new"))
    scene = scene.after(scene.plan)
    unheard = scene.unheard(0)
    assert told(unheard) is not None, "a new leader has not heard everybody"
    assert unheard.plan.events == ()
    assert told(scene.with_agent(0, code=None)) is not None
    over = scene.with_agent(0, code=code("new"))
    assert told(over) is None
    assert told(scene.with_agent(0, code=())) is None
    assert told(scene.without(0).without(1)) is None, "they are gone"


def test_a_run_that_has_succeeded_keeps_the_word() -> None:
    scene = a_run(replicas=2).running().with_all(code=code("old")).with_agent(1, code=code("new"))
    scene = scene.after(scene.plan).all_done().with_all(finished=True)
    while not scene.status.finished:
        scene = scene.after(scene.plan)
    assert told(scene) is not None
    assert told(scene.with_all(code=code("new"))) is not None
