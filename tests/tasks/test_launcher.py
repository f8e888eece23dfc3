"""The process that runs tries: what it gives them, how long it lives, and what it leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.eventually import eventually
from tests.tasks.tasks_that_end import NeedsTwo, is_gone, ready
from trainrun.contract import variables
from trainrun.tasks import values
from trainrun.tasks.launching import Launcher
from trainrun.tasks.records import Crashed, End, Finished, Raised

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.usefixtures("no_program")

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    made = Launcher(("4", "7"))
    yield made
    await made.close()


async def result_of(
    launcher: Launcher, folder: Path, function: str, *args: Any, **given: Any
) -> Any:
    end = await launcher.run(ready(folder, function, *args, **given))
    assert isinstance(end, Finished), end
    (output,) = end.outputs
    if output.inline:
        return values.load_value(values.inline_of(output))
    assert values.digest_of(folder / "0") == output.digest
    if output.kind == "Folder":
        values.restore_folder(folder / "0", folder / "restored")
        return values.load_value(folder / "restored")
    return values.load_value(folder / "0")


@pytest.mark.slow
async def test_small_results_are_inline_and_large_ones_in_a_file(
    launcher: Launcher, tmp_path: Path
) -> None:
    assert await result_of(launcher, tmp_path / "small", "give", {"a": 1}) == {"a": 1}
    assert not (tmp_path / "small" / "0").exists()

    large = b"x" * (1 << 20)
    assert await result_of(launcher, tmp_path / "large", "give", large) == large
    assert (tmp_path / "large" / "0").stat().st_size > len(large)

    for number, array in enumerate((np.ones((300, 300)), np.ones((300, 300))[::2, ::2])):
        folder = tmp_path / str(number)
        assert np.array_equal(await result_of(launcher, folder, "give", array), array)


async def test_an_exception_comes_with_its_traceback_and_itself_where_it_can_be_pickled(
    launcher: Launcher, tmp_path: Path
) -> None:
    end = await launcher.run(ready(tmp_path / "1", "raises", ValueError, "no such shard"))
    assert isinstance(end, Raised)
    assert end.error == "ValueError: no such shard"
    assert end.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert "raise kind(*args)" in end.traceback
    assert "running.py" not in end.traceback
    assert end.pickled

    end = await launcher.run(ready(tmp_path / "2", "raises", NeedsTwo, "a", "b"))
    assert isinstance(end, Raised)
    assert (end.error, end.pickled) == ("tests.tasks.tasks_that_end.NeedsTwo: a-b", "")


async def hanging(launcher: Launcher, tmp_path: Path) -> tuple[asyncio.Task[End], int, int]:
    """A try that hangs, its process and the child that this has started."""
    said = tmp_path / "said"
    order = ready(tmp_path / "1", "leaves_a_child_and_hangs", said, kwargs={"session": False})
    running = asyncio.create_task(launcher.run(order))
    while not said.exists():
        await asyncio.sleep(0.005)
    task, child = map(int, said.read_text().split())
    return running, task, child


async def test_a_killed_task_is_known_within_50_ms_and_its_children_are_gone(
    launcher: Launcher, tmp_path: Path
) -> None:
    running, task, child = await hanging(launcher, tmp_path)

    os.kill(task, signal.SIGKILL)
    killed = time.monotonic()
    end = await running

    assert time.monotonic() - killed < 0.5, "50 ms on a machine that is not busy"
    assert end == Crashed(reason="Signalled", message="killed by SIGKILL")
    eventually(lambda: is_gone(child))


async def test_what_a_finished_task_has_started_goes_with_it(
    launcher: Launcher, tmp_path: Path
) -> None:
    child = await result_of(launcher, tmp_path / "1", "leaves_a_child", kwargs={"session": False})
    eventually(lambda: is_gone(child))

    daemon = await result_of(launcher, tmp_path / "2", "leaves_a_child", kwargs={"session": True})
    assert not is_gone(daemon)
    await launcher.close()
    eventually(lambda: is_gone(daemon))


async def test_a_task_that_is_cancelled_is_gone_when_that_is_known(
    launcher: Launcher, tmp_path: Path
) -> None:
    starting = asyncio.create_task(launcher.run(ready(tmp_path / "1", "sleeps")))
    await asyncio.sleep(0)
    starting.cancel()  # while the launcher still imports
    with pytest.raises(asyncio.CancelledError):
        await starting

    pid = tmp_path / "pid"
    running = asyncio.create_task(
        launcher.run(ready(tmp_path / "2", "catches_everything", pid, timeout=60.0))
    )
    while not pid.exists() or not pid.read_text():
        await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert is_gone(int(pid.read_text()))


@pytest.mark.slow
@pytest.mark.case(
    "tasks", "The process that starts a rank's tasks is killed", counted="a retry of the task"
)
async def test_a_launcher_that_dies_takes_its_tasks_along_and_another_one_takes_over(
    launcher: Launcher, tmp_path: Path
) -> None:
    running, task, child = await hanging(launcher, tmp_path)
    os.kill(
        int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
    )

    end = await running
    assert end == Crashed(
        reason="Signalled", message="the process that starts tasks exited with code -9"
    )
    eventually(lambda: is_gone(task) and is_gone(child))
    assert await result_of(launcher, tmp_path / "2", "give", 5) == 5


async def test_tasks_share_the_gpus_and_do_not_speak_for_their_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (variables.SOCKET, variables.CONTROL, variables.STAGING, variables.RANK):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv(variables.RUN, "prepare")
    launcher = Launcher(("4", "7"))
    names = ("CUDA_VISIBLE_DEVICES", variables.SOCKET, variables.RANK, variables.RUN)
    found = await asyncio.gather(
        *(
            result_of(launcher, tmp_path / str(number), "environment", *names, gpus=gpus)
            for number, gpus in enumerate((1, 1, 0))
        ),
    )
    await launcher.close()
    assert found == [
        ["4", None, None, "prepare"],
        ["7", None, None, "prepare"],
        ["", None, None, "prepare"],
    ]


@pytest.mark.slow
async def test_forked_tasks_draw_other_random_numbers(launcher: Launcher, tmp_path: Path) -> None:
    drawn = [await result_of(launcher, tmp_path / str(n), "draws") for n in range(3)]
    assert len({first for first, _ in drawn}) == len({second for _, second in drawn}) == 3


async def test_a_folder_is_the_same_tar_whoever_makes_it(
    launcher: Launcher, tmp_path: Path
) -> None:
    folder = await result_of(launcher, tmp_path / "1", "fills_a_folder", "c")
    again = await result_of(launcher, tmp_path / "2", "fills_a_folder", "c")
    assert isinstance(folder, values.Folder)
    assert values.digest_of(tmp_path / "1/0") == values.digest_of(tmp_path / "2/0")
    assert (folder / "a").read_text() == (again / "b" / "c").read_text() == "c"
    assert os.access(folder / "run.sh", os.X_OK)
    assert (folder / "run.sh").stat().st_mode & 0o222 == 0

    from trainrun.tasks.calls import ObjectRef

    taken = {("f", 0): Path(folder)}
    read = await result_of(launcher, tmp_path / "3", "reads_a_folder", ObjectRef("f"), values=taken)
    assert read == ["a", "b", "b/c", "run.sh"]


async def test_values_stand_in_the_place_of_references_however_deep(
    launcher: Launcher, tmp_path: Path
) -> None:
    from trainrun.tasks.calls import ObjectRef

    file = tmp_path / "large"
    large = values.keep_value(["x" * 100_000], file)
    small = values.keep_value({"s"}, tmp_path / "unused")
    assert not large.inline
    taken = {("a", 0): values.inline_of(small), ("b", 1): file}
    refs = {"deep": [(ObjectRef("a"), ObjectRef("b", 1))], "again": ObjectRef("a")}
    found = await result_of(launcher, tmp_path / "1", "give", refs, values=taken)
    assert found == {"deep": [({"s"}, ["x" * 100_000])], "again": {"s"}}


PROGRAM = """
import asyncio, os, pickle, sys
from pathlib import Path
from tests.tasks.tasks_that_end import ready
from trainrun.tasks.launching import Launcher, LauncherFailed

{top}

async def main():
    launcher = Launcher()
    await launcher.start()
    print(await launcher.run(ready(Path(sys.argv[1]), *{call!r})), flush=True)
    await launcher.close()

if {guard}:
    try:
        asyncio.run(main())
    except LauncherFailed as error:
        sys.exit(str(error))
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(
        top: str, *call: str, guard: str = "__name__ == '__main__'", module: str = ""
    ) -> subprocess.CompletedProcess[str]:
        text = PROGRAM.format(top=textwrap.dedent(top), call=call, guard=guard)
        file = tmp_path / (module.replace(".", "/") or "prog") / "__main__.py"
        if not module or not module.startswith("whole"):
            file = file.parent.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        started = ["-m", module] if module else [str(file)]
        return subprocess.run(
            [sys.executable, *started, str(tmp_path / "try")],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'worker_image'}"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


OWN = """
class Own:
    pass

def make():
    print("made", __file__)
    return Own()
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["", "package.prog", "whole"])
def test_the_program_is_imported_as_it_was_started(
    module: str, program: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = program(OWN, "__main__:make", module=module)
    assert (done.returncode, done.stderr) == (0, "")
    assert "made" in done.stdout
    assert "Finished" in done.stdout


@pytest.mark.slow
@pytest.mark.case("tasks", "The program of tasks cannot be imported", counted="the program ends")
def test_a_program_that_cannot_be_imported_is_named(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    top = """
        if __name__ != "__main__":
            import no_such_module
    """
    done = program(top, "__main__:make")
    assert done.returncode == 1
    assert (
        "the process that starts tasks cannot import the program: "
        "ModuleNotFoundError: No module named 'no_such_module'"
    ) in done.stderr
    assert "import no_such_module" in done.stderr

    done = program("", "__main__:make", guard="True")
    assert done.returncode == 1
    assert 'Put tasks.run(main) below `if __name__ == "__main__":`' in done.stderr


@pytest.mark.slow
@pytest.mark.case("tasks", "Importing the program starts threads or opens a GPU")
def test_with_threads_each_task_is_a_fresh_interpreter_and_the_module_is_named(
    program: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "threading_module.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    top = """
        import threading_module, json
        made = os.getppid()
        def make():
            return open("/proc/self/cmdline").read().count("run_alone")
    """
    done = program(top, "__main__:make")
    assert "Finished" in done.stdout
    assert "inline='gAVLAS4='" in done.stdout  # 1
    assert done.stderr == (
        "trainrun: importing threading_module started threads, so tasks cannot be forked: each one "
        "starts a new interpreter, which takes longer. Do this inside functions instead\n"
    )


@pytest.mark.case("tasks", "A rank is killed while its tasks run", counted="its cause")
def test_no_task_outlives_a_rank_that_is_killed(tmp_path: Path) -> None:
    said, text = tmp_path / "said", PROGRAM.format(top="", call=(), guard="__name__ == '__main__'")
    text = text.replace(
        "*()", f"'leaves_a_child_and_hangs', Path({str(said)!r}), kwargs={{'session': True}}"
    )
    (tmp_path / "prog.py").write_text(text)
    rank = subprocess.Popen(
        [sys.executable, str(tmp_path / "prog.py"), str(tmp_path / "try")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'worker_image'}"},
    )
    eventually(said.exists)
    task, child = map(int, said.read_text().split())
    launcher = int(Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()[1])

    rank.kill()
    rank.wait()

    eventually(lambda: all(map(is_gone, (task, child, launcher))))
