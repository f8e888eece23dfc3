"""Scripts of several workers that save into folders of their own, under real agents."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.folder.gangs import LONG, RULE, Gang

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn


def test_saves_of_each_rank_are_one_checkpoint_and_each_worker_gets_its_own_back(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2": seen(); sys.exit()
save(7); save(7, f"rank{RANK}.bin"); time.sleep(600)
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    assert gang.files(7) == {
        "worker-00000/step-7/model.bin": "7 of 0",
        "worker-00000/step-7/rank0.bin": "7 of 0",
        "worker-00001/.trainrun-worker-1/step-7/model.bin": "7 of 1",
        "worker-00001/.trainrun-worker-1/step-7/rank1.bin": "7 of 1",
    }
    gang.end()
    gang.replace(1)
    gang.begin(2, 7)
    gang.there[0].shows("is there already: nothing was read")
    words = "sees ['--resume', 'out/step-7/model.bin'] "
    shown = eventually_shown(gang, 1, words)
    assert "'step-7/model.bin': '7 of 1'" in shown
    assert "'step-7/rank1.bin': '7 of 1'" in shown


def eventually_shown(gang: Gang, slot: int, words: str) -> str:
    """The line of a worker's output with these words."""
    gang.there[slot].shows(words, timeout=LONG)
    return next(line for line in gang.there[slot].output.splitlines() if words in line)


def test_a_save_of_rank_0_alone_is_stored_and_every_worker_gets_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2": seen(); sys.exit()
Path("out").mkdir(); Path("out/log.txt").write_text("1")
if RANK == 0: save(7)
time.sleep(600)
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    gang.end()
    shutil.rmtree(gang.folder(0) / "out")
    gang.begin(2, 7)
    for slot in (0, 1):
        shown = eventually_shown(gang, slot, "sees ['--resume', 'out/step-7/model.bin'] ")
        assert "'step-7/model.bin': '7 of 0'" in shown


def test_a_worker_that_never_has_the_last_file_adds_what_it_has(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
save(7, f"rng{RANK}")
if RANK == 0: save(7, "state.json", "{}")
time.sleep(600)
"""
    gang = Gang(operator, workers, script, replace(RULE, complete=("*/state.json",)))
    gang.committed(7)
    assert sorted(gang.files(7)) == [
        "worker-00000/step-7/rng0",
        "worker-00000/step-7/state.json",
        "worker-00001/.trainrun-worker-1/step-7/rng1",
    ]


def test_after_a_death_at_different_saves_the_newest_common_one_is_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2": seen(); sys.exit()
save(7); wait("both")
save(8, "state.json", "{}")
if RANK: save(9, "state.json", "{}")
os.kill(os.getpid(), signal.SIGKILL)
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    gang.tell("both")
    gang.until(lambda: all(state.exits for state in gang.states()), "their death")
    gang.end(8)
    gang.committed(8)
    assert not gang.is_committed(9)
    gang.begin(2, 8)
    for slot in (0, 1):
        shown = eventually_shown(gang, slot, "sees ")
        assert "step-8/state.json" in shown
        assert "step-9" not in shown


@pytest.mark.parametrize("last", [0, 1])
def test_after_exit_0_no_checkpoint_lacks_the_save_that_a_worker_could_not_take(
    operator: OperatorStandIn, workers: Workers, last: int
) -> None:
    script = f"""
if RANK == {last}: wait("other")
save(7, "state.json", "{{}}" if RANK == 0 else "{{")
"""
    gang = Gang(operator, workers, script)
    other = 1 - last
    gang.until(lambda: gang.state(other).exits, "the end of the first")
    if last == 1:
        gang.until(lambda: any(s.step == 7 for s in gang.state(1).staged), "that it hears of 7")
    gang.tell("other")
    gang.until(lambda: 7 in gang.state(1).dropped, "that step 7 is given up")
    assert not gang.is_committed(7)
    problems = {(p.reason, p.message) for p in gang.state(1).problems}
    assert (
        "SaveFailed",
        "no rank will have a checkpoint of step 7, since worker 1 could not store its save",
    ) in problems
    assert (
        "Incomplete",
        "the save in out is not stored: step-7/state.json is not JSON. A new worker would begin "
        "with an older one",
    ) in problems


def test_the_last_save_does_not_wait_for_a_worker_whose_folder_cannot_be_read_at_its_end(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if RANK == 0: save(7); sys.exit()
Path("out").mkdir()
for number in range(20_001): Path("out", f"{number}.png").touch()
"""
    gang = Gang(operator, workers, script)
    gang.until(lambda: 7 in gang.state(1).dropped, "that step 7 is given up")
    problems = {(p.reason, p.message) for p in gang.state(1).problems}
    assert (
        "SaveFailed",
        "no rank will have a checkpoint of step 7, since the folder of worker 1 cannot be read: it "
        "has more than 20000 files",
    ) in problems


def test_a_save_of_worker_1_alone_is_stored_and_every_worker_gets_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2": seen(); sys.exit()
if RANK == 1: save(7)
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    gang.end()
    gang.begin(2, 7)
    for slot in (0, 1):
        words = "sees ['--resume', 'out/step-7/model.bin'] {'step-7/model.bin': '7 of 1'}"
        assert eventually_shown(gang, slot, words)


@pytest.mark.parametrize("last", [0, 1])
def test_final_models_are_stored_beside_the_last_save_of_each_worker(
    operator: OperatorStandIn, workers: Workers, last: int
) -> None:
    script = f"""
if ATTEMPT == "2": seen(); sys.exit()
save(7); wait("stored")
if RANK == {last}: wait("other")
if RANK == 0: Path("out/best.bin").write_text("best")
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    gang.tell("stored")
    gang.until(lambda: gang.state(1 - last).exits, "the end of the first")
    if last == 1:
        gang.until(lambda: any(s.step == 8 for s in gang.state(1).staged), "that it hears of 8")
    gang.tell("other")
    gang.committed(8)
    assert gang.files(8) == {
        "worker-00000/best.bin": "best",
        "worker-00000/step-7/model.bin": "7 of 0",
        "worker-00001/.trainrun-worker-1/step-7/model.bin": "7 of 1",
    }
    gang.end()
    gang.replace(1)
    gang.begin(2, 8)
    shown = eventually_shown(gang, 1, "sees ['--resume', 'out/step-7/model.bin'] ")
    assert "'step-7/model.bin': '7 of 1'" in shown
    assert "'best.bin': 'best'" in shown


def test_without_numbers_the_save_of_slot_0_is_everybodys(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2": seen(); sys.exit()
Path("out").mkdir(); Path("out/ckpt").write_text(f"epoch {9 - RANK}"); time.sleep(600)
"""
    rule = replace(RULE, newest="ckpt", resume_args=())
    gang = Gang(operator, workers, script, rule)
    gang.committed(1)
    assert [*gang.files(1).values()] == ["epoch 9"]
    gang.end()
    gang.begin(2, 1)
    for slot in (0, 1):
        assert "'ckpt': 'epoch 9'" in eventually_shown(gang, slot, "sees ")


def test_one_worker_that_starts_over_ends_the_run(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "1": save(7); time.sleep(600)
for step in (8, 9) if RANK == 0 else (1, 2):
    save(step); time.sleep(4)
time.sleep(600)
"""
    gang = Gang(operator, workers, script)
    gang.committed(7)
    gang.end()
    gang.begin(2, 7)
    gang.until(lambda: any(state.fatal for state in gang.states()), "a fatal problem")
    (fatal,) = (state.fatal for state in gang.states() if state.fatal)
    assert fatal.type == "ResumeIgnored"
    assert fatal.message.startswith("the script started over, although step-7 was restored: it sav")


def test_workers_that_share_a_folder_of_which_each_would_store_a_part_end_the_run(
    operator: OperatorStandIn, workers: Workers
) -> None:
    volume = workers.folder / "volume"
    volume.mkdir()
    gang = Gang(operator, workers, "save(7); time.sleep(600)", volume=volume)
    gang.until(lambda: any(state.fatal for state in gang.states()), "a fatal problem")
    (fatal,) = (state.fatal for state in gang.states() if state.fatal)
    assert fatal.reason == "FolderRefused"
    assert fatal.message == (
        "workers 0 and 1 share the folder out, but checkpoint.folder.carry is true. Set carry: "
        "false, or give each worker a folder of its own"
    )
