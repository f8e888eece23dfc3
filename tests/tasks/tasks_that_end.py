"""Functions that end in all the ways in which a task may end; and how they are run."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trainrun.tasks import running
from trainrun.tasks.calls import TaskOptions, changed
from trainrun.tasks.messages import ReadyTry, StartTask
from trainrun.tasks.records import TaskRun


class NoSuchShard(LookupError):
    pass


class NeedsTwo(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one}-{two}")


class Grumpy:
    """An argument whose unpickling fails."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def ready(folder: Path, function: str, *args: Any, **given: Any) -> ReadyTry:
    """What a worker gives to its launcher, for a function of this module."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = pickle.dumps((args, given.pop("kwargs", {})), protocol=5)
    values = given.pop("values", {})
    order = StartTask(
        run=TaskRun(key=folder.name),
        function=function if ":" in function else f"{__name__}:{function}",
        arguments=arguments,
        options=changed(TaskOptions(), function, given),
    )
    return ReadyTry(order, values, folder)


def give(value: Any) -> Any:
    return value


def exits(code: int) -> None:
    os._exit(code)


def system_exit(code: Any) -> None:
    sys.exit(code)


def dies(name: str) -> None:
    os.kill(os.getpid(), signal.Signals[name])
    time.sleep(60)


def raises(kind: type[BaseException], *args: Any) -> None:
    raise kind(*args)


def uses(size: int) -> None:
    held = b"x" * size
    time.sleep(60)
    print(len(held))


def child_uses(size: int) -> None:
    subprocess.run([sys.executable, "-c", f"import time; a = b'x' * {size}; time.sleep(60)"])


def sleeps(seconds: float = 60.0) -> None:
    time.sleep(seconds)


def catches_everything(pid: Path | None = None) -> None:
    if pid is not None:
        pid.write_text(str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


def cannot_be_pickled() -> Any:
    return lambda: None


def leaves_a_child(*, session: bool) -> int:
    return subprocess.Popen(["sleep", "600"], start_new_session=session).pid


def leaves_a_child_and_hangs(said: Path, *, session: bool) -> None:
    child = leaves_a_child(session=session)
    said.with_suffix(".new").write_text(f"{os.getpid()} {child}")
    said.with_suffix(".new").replace(said)
    time.sleep(600)


def fills_a_folder(name: str) -> Path:
    folder = running.output_directory()
    (folder / "b").mkdir()
    (folder / "b" / name).write_text(name)
    (folder / "a").symlink_to(f"b/{name}")
    (folder / "run.sh").write_text("true")
    (folder / "run.sh").chmod(0o700)
    return folder


def reads_a_folder(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def nested_folder() -> dict[str, Path]:
    return {"out": running.output_directory()}


def environment(*names: str) -> list[str | None]:
    return [os.environ.get(name) for name in names]


def draws() -> tuple[float, ...]:
    import random

    import numpy as np

    return random.random(), float(np.random.random())


def is_gone(pid: int) -> bool:
    """Also when it is a zombie, whose parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True
