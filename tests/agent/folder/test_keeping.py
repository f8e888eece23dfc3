"""A script's folder under a real agent: what is taken, what is not, and what ends the run."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from trainrun.contract.answer import FolderRule, Hold, ResolveRequest, RunSettings
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.agent.workers import Worker
    from tests.support.operator_stand_in import OperatorStandIn
    from trainrun.contract.agent_state import AgentState

LONG = 60.0
RULE = FolderRule(
    path="out", newest="step-*", settle=1.0, resume_args=("--resume", "{newest}/model.bin")
)
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
ATTEMPT = os.environ["TRAINRUN_ATTEMPT"]
def file(step):
    folder = Path("out", f"step-{step}")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "model.bin"
def save(step):
    file(step).write_text(str(step) * 100)
def stored(step, attempt=1):
    path = Path(f"storage/run/checkpoints/step-{step:09d}-attempt-{attempt}/manifest.json")
    while not path.exists(): time.sleep(.02)
"""


def begin(operator: OperatorStandIn, workers: Workers, script: str, *, attempt: int = 1) -> Worker:
    worker = workers.start(PRELUDE + script, settings=RunSettings(folder=RULE))
    from_scratch(operator, attempt)
    return worker


def from_scratch(operator: OperatorStandIn, attempt: int) -> None:
    request = ResolveRequest(attempt=attempt)
    operator.order(Hold(attempt=attempt, offer=True, resolve=request))
    operator.until(lambda s: s.resolution and s.resolution.attempt == attempt, timeout=LONG)
    operator.order(start(attempt))


def over(operator: OperatorStandIn, following: int = 2) -> AgentState:
    """The state once the attempt has ended and all that it left is known."""
    operator.order(Hold(attempt=following))
    return operator.until(lambda s: s.held.attempt == following and s.phase == "Idle", timeout=LONG)


def resume(operator: OperatorStandIn, step: int) -> None:
    point = CheckpointId(attempt=1, step=step)
    request = ResolveRequest(attempt=2)
    operator.order(Hold(attempt=2, offer=True, resolve=request))
    operator.until(lambda s: s.resolution and s.resolution.attempt == 2, timeout=LONG)
    operator.order(start(2, resume=point))


def test_a_save_that_hangs_with_its_file_open_is_not_taken_when_it_is_killed(
    operator: OperatorStandIn, workers: Workers
) -> None:
    begin(
        operator,
        workers,
        """
save(1); stored(1)
with file(2).open("w") as half:
    half.write("2" * 50); half.flush(); time.sleep(4); Path("hangs").touch(); time.sleep(600)
""",
    )
    operator.until(lambda _: (workers.folder / "hangs").exists(), timeout=LONG)
    state = over(operator)
    assert max((staged.step for staged in state.staged), default=1) == 1
    assert [p.name for p in (workers.storage / "run" / "checkpoints").iterdir()] == [
        "step-000000001-attempt-1"
    ]


def test_a_save_younger_than_settle_is_not_taken_after_a_kill(
    operator: OperatorStandIn, workers: Workers
) -> None:
    begin(operator, workers, "save(1); stored(1); save(2); os.kill(os.getpid(), signal.SIGKILL)")
    operator.until(lambda s: s.exits, timeout=LONG)
    assert max((staged.step for staged in over(operator).staged), default=1) == 1


def test_a_young_save_whose_format_shows_its_end_is_taken_after_a_kill(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
import zipfile
with zipfile.ZipFile(file(2), "w") as archive: archive.writestr("data", "2")
os.kill(os.getpid(), signal.SIGKILL)
"""
    begin(operator, workers, script)
    operator.until(lambda s: s.exits, timeout=LONG)
    state = over(operator)
    taken = [staged.step for staged in state.staged]
    assert (taken or [state.committed and state.committed.id.step]) == [2], state


def test_the_last_save_of_a_script_that_succeeds_is_stored_with_the_models_beside_it(
    operator: OperatorStandIn, workers: Workers
) -> None:
    begin(operator, workers, "save(1); Path('out/best.bin').write_text('best')")
    state = operator.until(lambda s: s.committed and s.phase == "Idle", timeout=LONG)
    assert state.committed is not None
    assert state.committed.id == CheckpointId(attempt=1, step=1)
    (checkpoint,) = (workers.storage / "run" / "checkpoints").iterdir()
    assert (checkpoint / "worker-00000" / "best.bin").read_text() == "best"


def test_final_models_of_an_attempt_without_a_new_save_are_stored_with_the_restored_one(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "1":
    save(7); stored(7); os.kill(os.getpid(), signal.SIGKILL)
Path("out/best.bin").write_text("best")
"""
    begin(operator, workers, script)
    operator.until(lambda s: s.exits, timeout=LONG)
    over(operator)
    resume(operator, 7)
    wanted = CheckpointId(attempt=2, step=8)
    operator.until(lambda s: s.committed and s.committed.id == wanted, timeout=LONG)
    stored = workers.storage / "run" / "checkpoints" / wanted.name / "worker-00000"
    assert (stored / "best.bin").read_text() == "best"
    assert (stored / "step-7" / "model.bin").read_text() == "7" * 100


def test_a_lost_folder_is_put_back_and_the_script_is_told_where_its_save_is(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = begin(
        operator,
        workers,
        """
if ATTEMPT == "1":
    save(7); stored(7); time.sleep(600)
path = os.environ["TRAINRUN_RESUME_PATH"]
print("resumes", sys.argv[1:], path, Path(sys.argv[2]).read_text()[:1])
""",
    )
    operator.until(lambda s: s.committed, timeout=LONG)
    over(operator)
    shutil.rmtree(workers.folder / "out")
    resume(operator, 7)
    worker.shows("resumes ['--resume', 'out/step-7/model.bin'] out/step-7 7", timeout=LONG)


def test_what_is_there_already_is_not_read_again_and_newer_saves_are_moved_aside(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = begin(
        operator,
        workers,
        """
if ATTEMPT == "1":
    save(7); stored(7); save(9); os.kill(os.getpid(), signal.SIGKILL)
print("sees", sorted(path.name for path in Path("out").iterdir()))
""",
    )
    operator.until(lambda s: s.exits, timeout=LONG)
    over(operator)
    resume(operator, 7)
    worker.shows("sees ['step-7']", timeout=LONG)
    assert "is there already: nothing was read" in worker.output
    assert (workers.folder / ".trainrun-aside" / "out" / "step-9" / "model.bin").exists()


def test_a_script_that_starts_over_ends_the_run_before_its_saves_are_taken(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "1":
    save(7); time.sleep(600)
for step in range(1, 7):
    save(step); time.sleep(4)
time.sleep(600)
"""
    begin(operator, workers, script)
    operator.until(lambda s: s.committed, timeout=LONG)
    over(operator)
    resume(operator, 7)
    state = operator.until(lambda s: s.fatal, timeout=LONG)
    assert state.fatal is not None
    assert state.fatal.type == "ResumeIgnored"
    assert re.fullmatch(
        "the script started over, although step-7 was restored: it saved step-[1-6]. Correct "
        "checkpoint.folder.resumeArgs and apply the run again; the store has kept the restored "
        "save",
        state.fatal.message,
    )
    assert state.staged == ()


def test_a_script_that_reports_checkpoints_too_is_refused(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
import trainrun
directory = trainrun.staging_directory()
(directory / "model.bin").write_text("x")
trainrun.report(step=3, checkpoint=directory)
time.sleep(600)
"""
    begin(operator, workers, script)
    state = operator.until(lambda s: s.fatal, timeout=LONG)
    assert state.fatal is not None
    assert (state.fatal.type, state.fatal.reason) == ("FolderRefused", "FolderRefused")
    assert state.fatal.message.startswith("rank 0 reported a checkpoint of step 3, but checkpoint.")


def test_files_of_which_none_matches_newest_are_told_and_a_late_folder_is_not(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """The folder appears while the script runs, as after an hour of preparation."""
    script = """
time.sleep(3)
for step in range(100):
    Path("out").mkdir(exist_ok=True)
    Path("out", f"model-{step}.bin").write_text("x")
    Path("out/log.txt").write_text("x")
    time.sleep(.5)
time.sleep(600)
"""
    begin(operator, workers, script)
    state = operator.until(lambda s: s.problems, timeout=LONG + 60)
    (problem,) = state.problems
    assert (problem.type, problem.reason) == ("FolderNotTaken", "NothingMatches")
    assert re.fullmatch(
        r"the save in out is not stored: nothing matches newest: step-\* \(model-0\.bin does not, "
        r"nor do \d+ others\)\. A new worker would begin with an older one",
        problem.message,
    )


def test_a_file_overwritten_in_the_numbered_folder_of_a_start_is_stored_each_time(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """YOLOv5 without a name: runs/exp2/weights/last.pt stays in exp2 until the next start."""
    script = """
last = Path("out/exp2/last.bin"); last.parent.mkdir(parents=True)
for step in (2, 3):
    last.write_text(str(step)); stored(step)
Path("out/exp3").mkdir(); Path("out/exp3/last.bin").write_text("4"); stored(4); time.sleep(600)
"""
    rule = replace(RULE, newest="exp*/last.bin")
    workers.start(PRELUDE + script, settings=RunSettings(folder=rule))
    from_scratch(operator, 1)
    operator.until(lambda s: s.committed and s.committed.id.step == 4, timeout=LONG)
    files = sorted((workers.storage / "run" / "checkpoints").glob("*/worker-00000/*/last.bin"))
    assert [path.read_text() for path in files] == ["2", "3", "4"]


@pytest.mark.rare("tests/agent/folder/test_keeping.py")
def test_a_folder_that_is_not_there_although_steps_are_printed_is_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """`path` is mistyped: the script saves elsewhere."""
    script = """
for step in range(600):
    print(f"iter {step}: loss 1.0, time 1ms", flush=True); time.sleep(.4)
"""
    workers.start(PRELUDE + script, settings=RunSettings(folder=RULE, output_forms=True))
    from_scratch(operator, 1)
    state = operator.until(lambda s: s.problems, timeout=6 * LONG)
    assert [(p.reason, p.message) for p in state.problems] == [
        (
            "NoFolder",
            f"the save in out is not stored: {workers.folder}/out does not exist. A new worker "
            "would begin with an older one",
        )
    ]


@pytest.mark.rare("tests/agent/folder/test_entries.py")
def test_a_script_that_saves_more_often_than_settle_is_told(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
for step in range(600):
    save(1); time.sleep(.4)
"""
    begin(operator, workers, script)
    state = operator.until(lambda s: s.problems, timeout=LONG + 60)
    assert [(p.reason, p.message) for p in state.problems] == [
        (
            "Changing",
            "the save in out is not stored: no save stays unchanged for settle (1 s); set settle "
            "below the time between two saves. A new worker would begin with an older one",
        )
    ]


def test_a_save_with_a_name_that_is_not_utf_8_is_told_and_the_next_one_is_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
save(1)
bad = b"out/step-1/\\xff.bin"
open(bad, "w").write("x")
while not Path("told").exists(): time.sleep(.1)
save(2); stored(2); time.sleep(600)
"""
    begin(operator, workers, script)
    state = operator.until(lambda s: s.problems, timeout=LONG)
    assert [(p.reason, p.message) for p in state.problems] == [
        (
            "Incomplete",
            "the save in out is not stored: 'step-1/\\udcff.bin': its name is not UTF-8, which "
            "object storage requires; rename it. A new worker would begin with an older one",
        )
    ]
    (workers.folder / "told").touch()
    state = operator.until(lambda s: s.committed and not s.problems, timeout=LONG)
    assert state.committed is not None
    assert state.committed.id.step == 2


def test_a_torn_save_is_moved_aside_although_the_worker_is_a_later_one_and_nothing_is_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    script = """
if ATTEMPT == "2":
    file(9).write_text("half"); os.kill(os.getpid(), signal.SIGKILL)
print("sees", sorted(path.name for path in Path(".").glob("out/*")))
"""
    worker = begin(operator, workers, script, attempt=2)
    operator.until(lambda s: s.exits, timeout=LONG)
    over(operator, following=3)
    from_scratch(operator, 3)
    worker.shows("sees []", timeout=LONG)
