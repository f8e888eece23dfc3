"""The loop over a world of one line of memory."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.runtime.states import RUN_UID, a_state, hold
from tests.simulation.world.clock import Clock
from tests.support.builders import a_config, a_worker
from trainrun.contract.answer import PROGRESS_INTERVAL
from trainrun_operator.api.run.status import HistoryEntry, TrainRunStatus
from trainrun_operator.api.run.status_parts import PostedProgress
from trainrun_operator.core.run.boundary import (
    Action,
    CreateWorker,
    Event,
    Observation,
    Plan,
    WorkerFact,
)
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.status_size import with_history
from trainrun_operator.runtime import reconciler
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.reconciler import Reconciler, Wakeup
from trainrun_operator.runtime.run_events import PassEnded, RunEvent, RunNews
from trainrun_operator.worlds.base import Agents, Seen, StatusConflict, StatusUnwritable

CONFIG = a_config(
    name="run", uid=RUN_UID, replicas=1, template_hash="t", checkpoints_uri="file:///c"
)
CREATE = CreateWorker(name="run-0-1", slot=0, created_for=1, template_hash="t")


@dataclass
class TinyWorld:
    """A status and a diary."""

    status: TrainRunStatus = field(default_factory=TrainRunStatus)
    workers: tuple[WorkerFact, ...] = ()
    diary: list[object] = field(default_factory=list)
    conflicts: int = 0
    broken: int = 0
    full: int = 0
    unanswered: int = 0
    display_interval: float = 0.0
    config: RunConfig = CONFIG

    async def observe(self, agents: Agents) -> Seen:
        if self.broken:
            self.broken -= 1
            raise OSError("no fact today")
        observation = Observation(
            now=datetime.now(UTC),
            status=self.status,
            workers=self.workers,
            listening_for=agents.listening_for,
            ordered=agents.ordered,
            last_words=agents.last_words,
        )
        return Seen(observation=observation, config=self.config)

    async def write_status(self, status: TrainRunStatus) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise StatusConflict("somebody else was faster")
        if self.full:
            self.full -= 1
            raise StatusUnwritable("cannot write status.json: make room")
        self.status = status
        self.diary.append(("status", status.phase))
        if self.unanswered:
            self.unanswered -= 1
            raise StatusUnwritable("the answer got lost")

    async def apply(self, action: Action) -> None:
        self.diary.append(action)


class Story:
    """A reconciler whose decisions are written down by the test."""

    def __init__(
        self,
        decide: Callable[[Observation], Plan],
        *,
        rerecord: timedelta = timedelta(0),
        cpu: Callable[[], float] = time.thread_time,
        progress_interval: float = PROGRESS_INTERVAL,
    ) -> None:
        self.world = TinyWorld()
        self.news: list[RunNews] = []
        self.wakeup = Wakeup(lambda: progress_interval)
        self.now = 0.0
        self.agents = RunAgents(
            run_uid=RUN_UID,
            on_news=self.wakeup.now,
            on_progress=self.wakeup.soon,
            clock=lambda: self.now,
        )
        self.reconciler = Reconciler(
            world=self.world,
            agents=self.agents,
            decide=lambda observation, _config: decide(observation),
            events=self,
            wakeup=self.wakeup,
            rerecord=rerecord,
            cpu=cpu,
        )

    def emit(self, news: RunNews) -> None:
        self.news.append(news)

    @property
    def reasons(self) -> list[str]:
        return [news.event.reason for news in self.news if isinstance(news, RunEvent)]

    async def until(self, over: Callable[[Plan], bool]) -> None:
        async with asyncio.timeout(10):
            await self.reconciler.run(lambda _seen, plan: over(plan))


def a_plan(status: TrainRunStatus, reason: str = "Waiting", **fields: object) -> Plan:
    return replace(Plan(reason=reason, message=reason, status=status), **fields)  # type: ignore[arg-type]


STARTED = Event(type="Normal", reason="Started", message="it starts")


def _start_then_run(observation: Observation) -> Plan:
    status = observation.status
    if status.attempt == 0:
        begun = replace(status, attempt=1, phase="Starting")
        plan = a_plan(begun, "Started", transition=True, events=(STARTED,))
        return with_history(plan, observation.now)
    return a_plan(status, "Running", actions=(CREATE,), answers={"run-0-1": hold()})


async def test_a_status_is_written_before_anything_is_done_about_it() -> None:
    story = Story(_start_then_run)
    await story.until(lambda plan: plan.reason == "Running")
    assert story.world.diary == [("status", "Starting"), CREATE]


async def test_events_are_told_after_the_write_they_belong_to() -> None:
    story = Story(_start_then_run)
    await story.until(lambda plan: plan.reason == "Running")
    assert story.reasons == ["Started"]
    assert isinstance(story.news[-1], PassEnded)


@pytest.mark.case("operator", "Two operators act at once")
async def test_after_a_conflict_the_world_is_observed_again_and_the_event_told_once() -> None:
    story = Story(_start_then_run)
    story.world.conflicts = 2
    await story.until(lambda plan: plan.reason == "Running")
    assert story.reasons == ["Started"]
    assert story.world.status.attempt == 1


@pytest.mark.case("operator", "The answer to a status write is lost")
async def test_an_event_is_told_once_when_the_answer_to_its_write_gets_lost() -> None:
    story = Story(_start_then_run)
    story.world.unanswered = 1
    await story.until(lambda plan: plan.reason == "Running")
    assert story.world.diary.count(("status", "Starting")) == 1
    assert story.reasons == ["Started"]


@pytest.mark.case("operator", "The operator dies between any two actions")
@pytest.mark.parametrize(
    ("ago", "told"), [(599, ["Started"]), (600, [])], ids=["lately", "long ago"]
)
async def test_who_takes_over_tells_what_the_leader_before_wrote_and_may_not_have_told(
    ago: float, told: list[str]
) -> None:
    story = Story(_start_then_run, rerecord=timedelta(minutes=10))
    due = datetime.now(UTC) - timedelta(seconds=ago)
    entry = HistoryEntry(time=due, type="Normal", reason="Started", message="it starts")
    story.world.status = TrainRunStatus(attempt=1, history=(entry,))
    await story.until(lambda plan: plan.reason == "Running")
    assert story.reasons == told
    assert all(news.time == due for news in story.news if isinstance(news, RunEvent))


async def test_who_leads_alone_does_not_tell_again_what_was_told_before_it_came() -> None:
    story = Story(_start_then_run)
    entry = HistoryEntry(time=datetime.now(UTC), type="Normal", reason="Started", message="it")
    story.world.status = TrainRunStatus(attempt=1, history=(entry,))
    await story.until(lambda plan: plan.reason == "Running")
    assert story.reasons == []


async def test_a_created_worker_may_call_before_the_next_look_at_the_world() -> None:
    story = Story(_start_then_run)
    await story.until(lambda plan: plan.reason == "Running")
    assert story.agents.knows("run-0-1")


async def test_a_pass_that_fails_is_tried_again() -> None:
    story = Story(_start_then_run)
    story.world.broken = 1
    await story.until(lambda plan: plan.reason == "Running")
    assert story.world.broken == 0


async def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story(_start_then_run)
    story.world.full = 2
    await story.until(lambda plan: plan.reason == "Running")
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [
        ("cannot write status.json: make room", None)
    ]
    assert story.world.status.phase == "Starting"


async def test_news_make_no_storm_of_writes_that_are_refused() -> None:
    story = Story(_start_then_run)
    story.world.full = 3
    ticker = asyncio.create_task(_news_all_the_time(story))
    started = time.monotonic()
    await story.until(lambda plan: plan.reason == "Running")
    ticker.cancel()
    assert time.monotonic() - started > 1.0, "three pauses, each longer than the one before"


@pytest.mark.parametrize(
    ("worker", "rest"),
    [
        (a_worker(phase=phase, agent=None), rest)
        for phase, rest in (("Ended", 0.04), ("Pending", 0.12), ("Running", 0.12))
    ],
    ids=lambda it: getattr(it, "phase", None),
)
async def test_passes_that_find_nothing_to_do_are_rarer_while_workers_start(
    worker: WorkerFact, rest: float
) -> None:
    passed: list[float] = []

    def decide(observation: Observation) -> Plan:
        passed.append(time.monotonic())
        return a_plan(observation.status, str(len(passed)))

    spent = itertools.count(step=0.005)  # seconds; asked for twice in each pass
    story = Story(decide, cpu=lambda: next(spent))
    story.world.workers = (worker,)
    ticker = asyncio.create_task(_news_all_the_time(story))
    await story.until(lambda plan: plan.reason == "5")
    ticker.cancel()
    assert min(b - a for a, b in itertools.pairwise(passed)) >= rest


async def _news_all_the_time(story: Story) -> None:
    while True:
        story.wakeup.now()
        await asyncio.sleep(0.001)


async def test_a_status_that_changed_for_display_only_is_written_last_of_all() -> None:
    def decide(observation: Observation) -> Plan:
        shown = replace(observation.status, phase="Running")
        return a_plan(shown, "Running", actions=(CREATE,))

    story = Story(decide)
    await story.until(lambda plan: True)
    assert story.world.diary == [CREATE, ("status", "Running")]


async def test_display_is_written_lazily_and_the_last_word_always() -> None:
    passes = 0

    def decide(observation: Observation) -> Plan:
        nonlocal passes
        passes += 1
        shown = replace(observation.status, restarts=passes)
        return a_plan(shown, f"pass {passes}", requeue_after=timedelta(milliseconds=1))

    story = Story(decide)
    story.world.display_interval = 3600.0
    await story.until(lambda plan: plan.reason == "pass 5")
    assert len(story.world.diary) == 2
    assert story.world.status.restarts == 5


async def test_posts_that_change_all_the_time_are_written_as_seldom_as_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "NOTABLE_INTERVAL", 0.0)
    passes = 0

    def decide(observation: Observation) -> Plan:
        nonlocal passes
        passes += 1
        posted = PostedProgress(step=passes, time=observation.now)
        shown = replace(observation.status, posted=posted)
        return a_plan(shown, f"pass {passes}", requeue_after=timedelta(milliseconds=1))

    story = Story(decide)
    story.world.display_interval = 3600.0
    await story.until(lambda plan: plan.reason == "pass 3")
    assert len(story.world.diary) == 2  # the first, and the last word


def test_in_a_large_fleet_the_next_look_at_progress_shows_it_and_no_pass_of_its_own() -> None:
    clock, looks = Clock(), list[float]()

    def decide(observation: Observation) -> Plan:
        looks.append(clock.now)
        posted = PostedProgress(step=len(looks), time=observation.now)
        return a_plan(replace(observation.status, posted=posted), "Running")

    story = Story(decide, cpu=lambda: 0.0, progress_interval=10.0)
    story.world.display_interval = 15.0
    life = clock.create_task(story.reconciler.run(lambda _seen, _plan: False))
    while clock.now < 60 and clock.step():
        story.wakeup.soon()  # steps are heard all the time
    life.cancel()
    assert looks == [0, 10, 20, 30, 40, 50, 60]
    assert len(story.world.diary) == 4  # at 0, 20, 40 and 60


async def test_news_of_an_agent_leads_to_a_pass() -> None:
    story = Story(lambda observation: a_plan(observation.status, str(len(observation.workers))))
    story.world.workers = (a_worker(agent=None),)
    heard: list[bool] = []

    def over(_plan: Plan) -> bool:
        heard.append(story.agents.contact("run-0-1").state is not None)
        if len(heard) == 1:
            asyncio.get_running_loop().call_soon(story.agents.receive, a_state())
        return heard[-1]

    await story.until(over)
    assert heard == [False, True]


async def test_wishes_between_two_passes_lead_to_one_pass() -> None:
    wakeup = Wakeup()
    await wakeup.wait()
    wakeup.now()
    wakeup.soon()
    wakeup.now()
    await wakeup.wait()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    wakeup.now()
    await waiting


async def test_an_earlier_wish_shortens_the_wait() -> None:
    wakeup = Wakeup()
    await wakeup.wait()
    wakeup.after(3600)
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.sleep(0)
    wakeup.after(0.001)
    async with asyncio.timeout(5):
        await waiting


async def test_an_edit_of_the_heartbeat_timeout_takes_nobody_for_silent() -> None:
    """Agents have called as the timeout before asked them to."""
    heard: list[timedelta] = []

    def decide(observation: Observation) -> Plan:
        heard.append(observation.listening_for)
        story.now += 20.0
        if len(heard) == 2:
            story.world.config = a_config(heartbeat_timeout=timedelta(seconds=5))
        story.wakeup.now()
        return a_plan(observation.status, str(len(heard)))

    story = Story(decide)
    await story.until(lambda plan: plan.reason == "4")
    assert [time.total_seconds() for time in heard] == [0.0, 20.0, 0.0, 20.0]
