"""The socket to the agent when a signal handler of the script raises in the middle of a call."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.eventually import eventually
from trainrun._process.connection import Connection
from trainrun.contract import messages, questions

if TYPE_CHECKING:
    from types import FrameType

    from tests.support.agent_stand_in import AgentStandIn

INTERRUPTS = 40
TICK = 0.001
"""Seconds of CPU; the kernel rounds it up to its own tick."""


class Interrupted(Exception):
    """What the handler raises."""


@pytest.fixture
def connection(agent: AgentStandIn) -> Iterator[Connection]:
    socket = str(agent.folder / "agent.sock")
    connection = Connection(socket, messages.Hello(rank=0, pid=1))
    yield connection
    connection.close()


@pytest.fixture
def interrupted() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs something over and over, until it was interrupted often enough."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        if armed:
            armed.clear()
            raise Interrupted

    def run(work: Callable[[], None]) -> None:
        for _ in range(INTERRUPTS):
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_PROF, TICK)
                while True:
                    work()
            except Interrupted:
                pass
            finally:
                armed.clear()

    armed: list[bool] = []
    before = signal.signal(signal.SIGPROF, handle)
    # An exception at any moment could leave a lock of the coverage tracer taken, for ever; and the
    # one that is to end `work` would be swallowed in a callback of the garbage collector, which
    # hypothesis has.
    trace = sys.gettrace()
    sys.settrace(None)
    gc.disable()
    yield run
    gc.enable()
    sys.settrace(trace)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.mark.slow
def test_a_report_that_a_signal_handler_interrupts_is_never_told_twice(
    agent: AgentStandIn,
    connection: Connection,
    interrupted: Callable[[Callable[[], None]], None],
) -> None:
    step = 0

    def report() -> None:
        nonlocal step
        step += 1
        connection.send(messages.report_line(step, '{"loss":0.5}'))

    interrupted(report)
    connection.send_surely(messages.report_line(step + 1, "{}"))

    eventually(lambda: agent.messages[-1].get("step") == step + 1)
    told = Counter(message["step"] for message in agent.of_type("report"))
    assert [step for step, times in told.items() if times > 1] == []


@pytest.mark.slow
def test_a_question_that_a_signal_handler_interrupts_leaves_its_reply_to_nobody_else(
    agent: AgentStandIn,
    connection: Connection,
    interrupted: Callable[[Callable[[], None]], None],
) -> None:
    call = 0

    def reply(message: dict[str, object]) -> dict[str, object]:
        return {"save": {"reason": str(message["call"]), "deadline": None, "writer_rank": 0}}

    def ask() -> None:
        nonlocal call
        call += 1
        save = connection.ask(questions.AskSave(call=call)).save
        assert save is not None
        assert save.reason == str(call)

    agent.replies["save"] = reply
    interrupted(ask)
    ask()


@pytest.fixture
def many_files() -> Iterator[None]:
    """All descriptors below 1,024 are taken, as by shards that are mapped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    yield
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_it_waits_for_room_also_in_a_process_with_very_many_files(
    many_files: None, tmp_path: Path
) -> None:
    """`long_section` raised ValueError: filedescriptor out of range in select()."""
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "s"))
        deaf.listen()
        connection = Connection(str(tmp_path / "s"), messages.Hello(rank=0, pid=1))
        for step in range(5000):
            connection.send(messages.report_line(step, "{}"))
        ended = messages.line_of(messages.SectionEnded(number=1))
        assert connection.send_surely(ended, wait=0.01) is False
        connection.close()
