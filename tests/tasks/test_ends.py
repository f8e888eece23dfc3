"""How the tries of a task end: each end of a process, and what is said of it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.tasks import tasks_that_end
from tests.tasks.tasks_that_end import Grumpy, NoSuchShard, ready
from trainrun._common.kernel import OomCounter
from trainrun.tasks.launcher import crash_of
from trainrun.tasks.launching import Launcher
from trainrun.tasks.records import Crashed, End, Raised

MIB = 1 << 20
MODULE = tasks_that_end.__name__


@dataclass(frozen=True)
class Case:
    """A call, and its end."""

    function: str
    args: tuple[Any, ...] = ()
    end: str = ""
    """`Exited`, `Signalled`, `OutOfMemory`, `TimedOut`, `Raised`, `Raised, retriable`, ..."""
    says: str = ""
    given: dict[str, Any] = field(default_factory=dict)


def raised(kind: type[BaseException], retry: Any, end: str) -> Case:
    return Case("raises", (kind, "x"), end, "x", {"retry_exceptions": retry})


CASES = {
    "exit 0": Case("exits", (0,), "Exited", "exited with code 0 before it returned"),
    "exit 1": Case("exits", (1,), "Exited", "exited with code 1 before it returned"),
    "exit 77": Case("exits", (77,), "Exited", "exited with code 77 before it returned"),
    "sys.exit()": Case("system_exit", (None,), "Exited", "exited with code 0 before it returned"),
    "sys.exit(3)": Case("system_exit", (3,), "Exited", "exited with code 3 before it returned"),
    "sys.exit(text)": Case("system_exit", ("no",), "Exited", "exited with code 1"),
    "SIGKILL": Case("dies", ("SIGKILL",), "Signalled", "killed by SIGKILL"),
    "SIGSEGV": Case("dies", ("SIGSEGV",), "Signalled", "killed by SIGSEGV"),
    "SIGTERM": Case("dies", ("SIGTERM",), "Signalled", "killed by SIGTERM"),
    "SIGABRT": Case("dies", ("SIGABRT",), "Signalled", "killed by SIGABRT"),
    "SIGINT": Case("dies", ("SIGINT",), "Raised, cancelled", "KeyboardInterrupt"),
    "memory": Case(
        "uses", (300 * MIB,), "OutOfMemory", "and its limit is 100 MiB", {"memory": 100 * MIB}
    ),
    "memory of a child": Case(
        "child_uses", (300 * MIB,), "OutOfMemory", "memory", {"memory": 100 * MIB}
    ),
    "timeout": Case("sleeps", (), "TimedOut", "killed after 0.3 s, its timeout", {"timeout": 0.3}),
    "timeout of one that catches everything": Case(
        "catches_everything", (), "TimedOut", "its timeout", {"timeout": 0.3}
    ),
    "KeyboardInterrupt": raised(KeyboardInterrupt, True, "Raised, cancelled"),
    "exception": raised(NoSuchShard, False, "Raised"),
    "all exceptions": raised(NoSuchShard, True, "Raised, retriable"),
    "its class": raised(NoSuchShard, (OSError, NoSuchShard), "Raised, retriable"),
    "a base": raised(NoSuchShard, (LookupError,), "Raised, retriable"),
    "another class": raised(NoSuchShard, (KeyError,), "Raised"),
    "its name": raised(NoSuchShard, ("NoSuchShard",), "Raised, retriable"),
    "its full name": raised(NoSuchShard, (f"{MODULE}.NoSuchShard",), "Raised, retriable"),
    "name of a base": raised(NoSuchShard, ("builtins.LookupError",), "Raised, retriable"),
    "name of another": raised(NoSuchShard, ("NoSuch", "KeyError"), "Raised"),
    "no class": raised(NoSuchShard, (), "Raised"),
    "result": Case(
        "cannot_be_pickled",
        (),
        "Raised",
        "its result 0 cannot be stored: a value of type function cannot be pickled",
        {"retry_exceptions": True},
    ),
    "number of results": Case("give", ((1, 2),), "Raised", "num_returns=3", {"num_returns": 3}),
    "second result": Case("give", ((1, [print]),), "", "", {"num_returns": 2}),
    "argument": Case(
        "give",
        (Grumpy(),),
        "Raised",
        "it cannot be called in its own process: ValueError: invalid literal",
        {"retry_exceptions": True},
    ),
    "folder in a value": Case("nested_folder", (), "Raised", "Return the folder by itself"),
    "no such function": Case("nothing", (), "Raised", "Define it at the top of a module"),
    "no such module": Case("no_such_module:f", (), "Raised", "No module named 'no_such_module'"),
}


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, no_program: None) -> dict[str, End]:
    """Of all cases, at once."""
    folder = tmp_path_factory.mktemp("ends")

    async def run_all() -> dict[str, End]:
        launcher = Launcher()
        calls = [
            launcher.run(ready(folder / name, case.function, *case.args, **case.given))
            for name, case in CASES.items()
        ]
        found = await asyncio.wait_for(asyncio.gather(*calls), 120)
        await launcher.close()
        return dict(zip(CASES, found, strict=True))

    return asyncio.run(run_all())


@pytest.mark.slow
@pytest.mark.case(
    "tasks", "A task's process ends before its function has returned", counted="a retry of the task"
)
@pytest.mark.case("tasks", "A task uses more memory than its limit", counted="a retry of the task")
@pytest.mark.case("tasks", "A task takes longer than its timeout", counted="a retry of the task")
@pytest.mark.case(
    "tasks",
    "The function of a task raises an exception in retry_exceptions",
    counted="a retry of the task",
)
@pytest.mark.case(
    "tasks", "Arguments or results of a task cannot be pickled", counted="the task fails"
)
@pytest.mark.parametrize("name", CASES)
def test_an_end_is_named_by_what_has_happened(name: str, ends: dict[str, End]) -> None:
    case, end = CASES[name], ends[name]
    match end:
        case Crashed():
            said, message = end.reason, end.message
        case Raised():
            flags = [flag for flag in ("retriable", "cancelled") if getattr(end, flag)]
            said, message = ", ".join(["Raised", *flags]), end.error
        case _:
            said, message = "", ""
    assert said == case.end
    assert case.says in message


@pytest.mark.case("tasks", "The kernel kills a task for memory", counted="a retry of the task")
def test_a_kill_by_the_kernel_for_memory_is_named_once(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom_kill 3\n")
    counter = OomCounter(file)
    assert crash_of(signal.SIGKILL, counter).reason == "Signalled"

    file.write_text("oom_kill 4\n")
    assert crash_of(signal.SIGTERM, counter).reason == "Signalled"
    found = crash_of(signal.SIGKILL, counter)
    assert found.reason == "OutOfMemory"
    assert found.message.startswith("the kernel killed it because the container had no memory left")
    assert crash_of(signal.SIGKILL, counter).reason == "Signalled"
