from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

import trainrun
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.support.agent_stand_in import AgentStandIn

REQUEST = {"reason": "SIGTERM", "deadline": 20.0, "writer_rank": 1}


def test_without_a_vote_the_answer_is_no_and_calls_are_counted(agent: AgentStandIn) -> None:
    assert [trainrun.should_save() for _ in range(5)] == [None] * 5
    assert agent.calls() == 5
    assert agent.of_type("save") == []


def test_calls_before_the_voted_one_are_not_asked(agent: AgentStandIn) -> None:
    agent.replies["save"] = lambda message: {"save": REQUEST}
    agent.prepare(3)
    assert [bool(trainrun.should_save()) for _ in range(4)] == [False, False, True, True]
    assert [message["call"] for message in agent.of_type("save")] == [3, 4]


def test_a_request_says_reason_deadline_and_writer(agent: AgentStandIn) -> None:
    agent.replies["save"] = lambda message: {"save": REQUEST}
    agent.prepare(1)
    before = time.monotonic()
    request = trainrun.should_save()
    assert request
    assert (request.reason, request.writer_rank) == ("SIGTERM", 1)
    assert request.deadline is not None
    assert request.seconds_left is not None
    assert before + 20 <= request.deadline <= time.monotonic() + 20
    assert 0 <= request.seconds_left <= 20


def test_an_unknown_deadline_is_none(agent: AgentStandIn) -> None:
    agent.replies["save"] = lambda message: {"save": {**REQUEST, "deadline": None}}
    agent.prepare(1)
    request = trainrun.should_save()
    assert request
    assert (request.deadline, request.seconds_left) == (None, None)


def test_a_vote_that_comes_to_nothing_is_a_no(agent: AgentStandIn) -> None:
    agent.replies["save"] = lambda message: {"save": None}
    agent.prepare(1)
    assert trainrun.should_save() is None
    agent.prepare(0)
    assert trainrun.should_save() is None
    assert len(agent.of_type("save")) == 1


def test_a_call_waits_while_the_agent_counts(agent: AgentStandIn) -> None:
    trainrun.should_save()
    with open(agent.control, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        caller = threading.Thread(target=trainrun.should_save)
        caller.start()
        caller.join(timeout=0.1)
        assert caller.is_alive()
        assert agent.calls() == 1
    caller.join()
    assert agent.calls() == 2


def test_every_call_of_every_thread_has_its_own_number(agent: AgentStandIn) -> None:
    callers = [
        threading.Thread(target=lambda: [trainrun.should_save() for _ in range(200)])
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert agent.calls() == 800


def test_a_vote_does_not_hold_up_reports(agent: AgentStandIn) -> None:
    decided = threading.Event()

    def answer(message: object) -> dict[str, object]:
        decided.wait()
        return {"save": None}

    agent.replies["save"] = answer
    agent.prepare(1)
    voter = threading.Thread(target=trainrun.should_save)
    voter.start()
    eventually(lambda: agent.of_type("save"))
    trainrun.report(step=1)
    assert voter.is_alive()
    decided.set()
    voter.join()
    eventually(lambda: agent.of_type("report"))


def test_an_agent_that_has_gone_asks_for_nothing(agent: AgentStandIn) -> None:
    assert trainrun.should_save() is None
    agent.prepare(1)
    eventually(lambda: agent.of_type("hello"))
    agent.die()
    assert trainrun.should_save() is None


def test_finish_is_told(agent: AgentStandIn) -> None:
    trainrun.finish()
    eventually(lambda: agent.of_type("finish"))


def test_without_an_agent_nobody_asks_to_save() -> None:
    assert not trainrun.should_save()
    trainrun.finish()


def test_an_interrupted_call_does_not_disturb_the_next(
    agent: AgentStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def answer(message: dict[str, object]) -> dict[str, object]:
        if message["call"] == 1:
            os.kill(os.getpid(), 2)
            answered.wait()
            return {"save": {**REQUEST, "reason": "stale"}}
        return {"save": REQUEST}

    agent.replies["save"] = answer
    agent.prepare(1)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            trainrun.should_save()
    finally:
        signal.signal(signal.SIGINT, before)
    answered.set()
    request = trainrun.should_save()
    assert request
    assert request.reason == "SIGTERM"
