from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.runtime.states import RUN_UID, a_state, hold, start
from trainrun.contract.agent_state import Notice, ProcessExit
from trainrun.contract.evidence import Posted
from trainrun_operator.runtime.agents import RunAgents


class Ear:
    """RunAgents with a clock of its own that counts what it is told."""

    def __init__(self, *workers: str) -> None:
        self.now = 100.0
        self.news = 0
        self.progress = 0
        self.heartbeats = 0
        self.agents = RunAgents(
            run_uid=RUN_UID,
            on_news=self._on_news,
            on_progress=self._on_progress,
            on_heartbeat=self._on_heartbeat,
            clock=lambda: self.now,
        )
        self.agents.expect(workers or ("run-0-1",))

    def _on_news(self) -> None:
        self.news += 1

    def _on_progress(self) -> None:
        self.progress += 1

    def _on_heartbeat(self, _state: object) -> None:
        self.heartbeats += 1


@pytest.mark.case("operator", "Heartbeats are lost, late, repeated or out of order")
def test_a_heartbeat_that_arrives_late_does_not_replace_a_newer_one() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=5, phase="Running"))
    assert ear.agents.receive(a_state(sequence=4, phase="Idle"))
    state = ear.agents.contact("run-0-1").state
    assert state is not None
    assert state.phase == "Running"
    assert ear.heartbeats == 1


def test_what_an_agent_said_more_than_a_minute_ago_is_no_fresh_state() -> None:
    ear = Ear("run-0-1", "run-1-1")
    ear.agents.receive(a_state(phase="Running", owes=5.0))
    ear.now += 59
    assert [state.owes for state in ear.agents.fresh_states] == [5.0]
    ear.now += 1
    assert ear.agents.fresh_states == ()


def test_who_says_what_cannot_be_read_is_not_silent_and_it_is_news_once() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=1, phase="Running"))
    for _ in range(2):
        ear.now += 60
        ear.agents.receive_unreadable("run-0-1", "phase: a word of tomorrow" + "!" * 1000)
    ear.agents.receive_unreadable("run-7-1", "somebody else's")
    heard = ear.agents.contact("run-0-1")
    assert heard.state is not None
    assert (heard.state.phase, heard.silent_for) == ("Running", timedelta(0))
    assert heard.unreadable.startswith("phase: a word of tomorrow!")
    assert len(heard.unreadable) == 300
    assert ear.news == 2
    ear.agents.receive(a_state(sequence=2, phase="Running"))
    assert (ear.agents.contact("run-0-1").unreadable, ear.news) == ("", 3)


def test_an_agent_that_was_replaced_is_not_heard_again() -> None:
    ear = Ear()
    ear.agents.receive(a_state(agent="old", sequence=9))
    assert ear.agents.receive(a_state(agent="new", sequence=1))
    assert not ear.agents.receive(a_state(agent="old", sequence=10))


def test_a_state_that_differs_in_ages_and_sequence_only_wakes_nobody() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=1, phase="Running", spawned=1.0, stall=0.0))
    ear.agents.receive(a_state(sequence=2, phase="Running", spawned=2.0, stall=0.1))
    assert (ear.news, ear.progress) == (1, 0)


def test_steps_and_metrics_are_progress_and_not_news() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=1, phase="Running", steps=(1,)))
    ear.agents.receive(a_state(sequence=2, phase="Running", steps=(2,), metrics={"loss": 0.5}))
    assert (ear.news, ear.progress) == (1, 1)


def test_what_a_framework_posts_is_progress_and_not_news() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=1, phase="Running"))
    ear.agents.receive(a_state(sequence=2, phase="Running", posted=Posted(step=1)))
    ear.agents.receive(a_state(sequence=3, phase="Running", posted=Posted(step=1)))
    assert (ear.news, ear.progress) == (1, 1)


def test_the_first_step_and_an_exit_are_news() -> None:
    ear = Ear()
    ear.agents.receive(a_state(sequence=1, phase="Running"))
    ear.agents.receive(a_state(sequence=2, phase="Running", steps=(1,), first_step=0.0))
    ear.agents.receive(a_state(sequence=3, steps=(1,), first_step=1.0, exits=(_exit(),)))
    assert ear.news == 3


def test_ages_go_on_while_the_agent_is_not_heard() -> None:
    ear = Ear()
    notice = Notice(reason="SIGTERM", age=1.0, remaining=20.0)
    ear.agents.receive(a_state(exits=(_exit(age=0.5),), notice=notice, first_step=3.0, stepped=1.0))
    ear.now += 4
    state = ear.agents.contact("run-0-1").state
    assert state is not None
    assert state.exits[0].age == 4.5
    assert state.notice == Notice(reason="SIGTERM", age=5.0, remaining=16.0)
    assert (state.first_step, state.stepped) == (7.0, 5.0)


def test_silence_is_counted_from_the_last_heartbeat() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.now += 7
    assert ear.agents.contact("run-0-1").silent_for == timedelta(seconds=7)


def test_after_an_outage_of_our_own_silence_is_counted_from_its_end() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.now += 60
    ear.agents.restart_listening()
    ear.now += 2
    assert ear.agents.contact("run-0-1").silent_for == timedelta(seconds=2)
    assert ear.agents.listening_for == timedelta(seconds=2)


@pytest.mark.case("operator", "The operator is frozen for a while (SIGSTOP)")
def test_an_operator_that_was_stopped_for_a_while_does_not_find_its_workers_silent() -> None:
    ear = Ear()
    ear.agents.beat()
    ear.agents.receive(a_state())
    ear.now += 6  # a pass comes first when it goes on, before any heartbeat is read
    assert ear.agents.contact("run-0-1").silent_for == timedelta(0)
    assert ear.agents.listening_for == timedelta(0)


def test_silence_may_count_only_from_a_later_moment_on() -> None:
    ear = Ear()
    ear.agents.restart_listening(grace=45)
    ear.agents.beat()
    ear.now += 40  # a pause of our own in between does not shorten it
    ear.agents.beat()
    assert ear.agents.contact("run-0-1").silent_for == timedelta(0)
    assert ear.agents.listening_for == timedelta(0)
    ear.now += 1
    ear.agents.beat()
    ear.now += 3
    ear.agents.beat()
    ear.now += 3
    assert ear.agents.contact("run-0-1").silent_for == timedelta(seconds=2)


def test_workers_are_silent_while_our_own_loop_turns() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    for _ in range(6):
        ear.agents.beat()
        ear.now += 1
    assert ear.agents.contact("run-0-1").silent_for == timedelta(seconds=6)


def test_a_worker_never_heard_is_silent_since_it_was_expected() -> None:
    ear = Ear()
    ear.now += 3
    heard = ear.agents.contact("run-0-1")
    assert (heard.state, heard.silent_for) == (None, timedelta(seconds=3))


async def test_an_answer_that_the_agent_has_not_seen_is_given_at_once() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.agents.publish({"run-0-1": hold()})
    assert await ear.agents.answer(a_state(seen=start().digest), wait=30) == hold()


def test_the_highest_attempt_that_was_ordered_is_remembered_when_its_worker_has_gone() -> None:
    ear = Ear("run-0-1", "run-1-1")
    ear.agents.publish({"run-0-1": hold(3), "run-1-1": hold(3)})
    assert ear.agents.ordered == 0
    ear.agents.publish({"run-0-1": start(3), "run-1-1": start(3)})
    ear.agents.expect(())
    ear.agents.publish({})
    assert ear.agents.ordered == 3


def test_the_last_words_of_agents_that_are_gone_are_kept_of_each_slot() -> None:
    ear = Ear("run-0-1", "run-1-1")
    ear.agents.receive(a_state(attempt=1))
    ear.agents.receive(a_state(attempt=2, sequence=2))
    ear.agents.receive(a_state(agent="another"))
    assert [words.attempt for words in ear.agents.last_words] == [2]
    ear.agents.expect(())
    assert [words.attempt for words in ear.agents.last_words] == [2]


async def test_an_answer_that_the_agent_has_seen_is_held_until_another_one_is_published() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.agents.publish({"run-0-1": hold()})
    waiting = asyncio.create_task(ear.agents.answer(a_state(seen=hold().digest), wait=30))
    await asyncio.sleep(0)
    ear.agents.publish({"run-0-1": hold()})
    await asyncio.sleep(0)
    assert not waiting.done()
    ear.agents.publish({"run-0-1": start()})
    assert await waiting == start()


async def test_a_newer_waiting_request_of_the_same_agent_releases_the_older() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.agents.publish({"run-0-1": hold()})
    older = asyncio.create_task(ear.agents.answer(a_state(seen=hold().digest), wait=30))
    await asyncio.sleep(0)
    newer = asyncio.create_task(ear.agents.answer(a_state(seen=hold().digest), wait=30))
    assert await older == hold()
    assert not newer.done()
    ear.agents.close()
    await newer


async def test_the_answer_is_repeated_when_the_time_is_over() -> None:
    ear = Ear()
    ear.agents.receive(a_state())
    ear.agents.publish({"run-0-1": hold()})
    assert await ear.agents.answer(a_state(seen=hold().digest), wait=0.01) == hold()


async def test_a_worker_that_left_the_run_is_released_and_unknown() -> None:
    ear = Ear("run-0-1", "run-1-1")
    ear.agents.receive(a_state())
    waiting = asyncio.create_task(ear.agents.answer(a_state(), wait=30))
    await asyncio.sleep(0)
    ear.agents.expect({"run-1-1"})
    assert await waiting is None
    assert not ear.agents.knows("run-0-1")


def _exit(age: float = 0.0) -> ProcessExit:
    return ProcessExit(rank=0, signal=9, age=age)
