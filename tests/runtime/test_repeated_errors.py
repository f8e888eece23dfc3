"""An error of the operator itself: told on the run, and never charged to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.runtime.test_reconciler import CREATE, Story, a_plan
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.status_parts import Failures
from trainrun_operator.runtime import run_events
from trainrun_operator.runtime.run_events import Kind, RepeatedErrors, RunEvent, one_line
from trainrun_operator.worlds.base import Agents, Seen, StatusRefused

if TYPE_CHECKING:
    from trainrun_operator.core.run.boundary import Action, Observation, Plan


class Refusal(Exception):
    """What the API server may say."""


class Trouble:
    """A run in its third attempt whose passes fail so many times, then succeed."""

    def __init__(self, *errors: Exception, transient: tuple[type[Exception], ...] = ()) -> None:
        self.errors = list(errors)
        self.counted: list[Kind] = []
        self.shown: list[str] = []
        self.story = Story(self.decide)
        self.world = self.story.world
        self.world.status = TrainRunStatus(
            attempt=3, phase="Running", failures=Failures(counted=2, text="2/5")
        )
        self.story.reconciler._repeated_errors = RepeatedErrors(
            world=self.world, events=self.story, transient=transient, on_error=self.counted.append
        )

    def decide(self, observation: Observation) -> Plan:
        found = observation.status.condition("OperatorError")
        self.shown.append(found.message if found is not None else "")
        if self.errors:
            raise self.errors.pop(0)
        # As the core does: conditions are derived anew in every pass.
        return a_plan(replace(observation.status, conditions=()), "Running")

    async def over(self) -> None:
        await self.story.until(lambda _plan: True)

    @property
    def events(self) -> list[tuple[str, str]]:
        happened = (news.event for news in self.story.news if isinstance(news, RunEvent))
        return [(event.reason, event.message) for event in happened]


@pytest.mark.case("operator", "A pass of the operator fails")
async def test_a_bug_in_a_pass_is_told_on_the_run_which_is_left_as_it_is() -> None:
    trouble = Trouble(KeyError("slot 7"), KeyError("slot 7"))
    untouched = trouble.world.status
    await trouble.over()
    before, shown, again = trouble.shown
    assert (before, again) == ("", shown)
    assert shown.startswith(
        "a pass of the operator failed: KeyError: 'slot 7' (test_repeated_errors.py:"
    )
    assert "nothing is charged to its budgets" in shown
    assert [reason for reason, _ in trouble.events] == ["OperatorError"], "told once"
    assert trouble.world.status == untouched, "and once a pass succeeds the condition is gone"
    assert trouble.counted == ["PassFailed", "PassFailed"]


async def test_an_action_that_is_refused_is_told_and_the_condition_goes_when_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trouble = Trouble()
    decide, apply, refusals = trouble.decide, trouble.world.apply, [Refusal("no right"), None]

    async def refused(action: Action) -> None:
        if (error := refusals.pop(0)) is not None:
            raise error
        await apply(action)

    monkeypatch.setattr(trouble.world, "apply", refused)
    monkeypatch.setattr(
        trouble.story.reconciler, "decide", lambda o, _: replace(decide(o), actions=(CREATE,))
    )
    await trouble.over()
    assert "Refusal: no right" in trouble.shown[1]
    assert trouble.world.status.conditions == ()


async def test_an_action_that_fails_again_and_again_does_not_freeze_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kubectl get` showed a run as it had been, and its edits stayed unobserved."""
    trouble = Trouble(transient=(Refusal,))
    monkeypatch.setattr(run_events, "PATIENT_TRIES", 1)
    refusals = [Refusal("failed calling webhook")] * 3

    async def refused(_action: Action) -> None:
        if refusals:
            raise refusals.pop(0)

    generations: list[int] = []

    def decide(observation: Observation, _config: object) -> Plan:
        plan = trouble.decide(observation)
        generations.append(observation.status.observed_generation)
        status = replace(plan.status, observed_generation=7)
        return replace(plan, status=status, actions=(CREATE,))

    monkeypatch.setattr(trouble.world, "apply", refused)
    monkeypatch.setattr(trouble.story.reconciler, "decide", decide)
    await trouble.over()
    assert generations == [0, 7, 7, 7]
    assert "Refusal: failed calling webhook" in trouble.shown[2]
    assert trouble.shown[2].endswith(
        "grant the missing permission, or repair the webhook or policy that refuses"
    )
    assert trouble.shown[3] == trouble.shown[2], "and it stays while that is so"
    assert trouble.world.status.conditions == ()
    assert [reason for reason, _ in trouble.events] == ["OperatorError"]


async def test_what_passes_by_itself_is_told_only_when_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_events, "PATIENT_TRIES", 2)
    brief = Trouble(ConnectionError("away"), transient=(OSError,))
    await brief.over()
    assert brief.events == []
    long = Trouble(ConnectionError("away"), ConnectionError("away"), transient=(OSError,))
    await long.over()
    assert [reason for reason, _ in long.events] == ["OperatorError"]


@pytest.mark.case("operator", "The API server refuses a status (403, 422)")
async def test_a_status_that_is_refused_is_told_by_an_event_for_nothing_else_can() -> None:
    trouble = Trouble(StatusRefused("the status cannot be written: trainruns/status is forbidden"))
    await trouble.over()
    ((reason, message),) = trouble.events
    assert reason == "OperatorError"
    assert "trainruns/status is forbidden" in message
    assert trouble.counted == ["StatusRefused"]


def refused_by(cause: Exception) -> StatusRefused:
    error = StatusRefused(f"the status cannot be written: {cause}")
    error.__cause__ = cause
    return error


async def test_a_refusal_that_may_pass_is_borne_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An API server that has just been started has not read the roles yet."""
    monkeypatch.setattr(run_events, "PATIENT_TRIES", 2)
    early = Trouble(refused_by(Refusal("no roles yet")), transient=(Refusal,))
    await early.over()
    assert early.events == []
    lasting = Trouble(*[refused_by(Refusal("no right"))] * 2, transient=(Refusal,))
    await lasting.over()
    ((reason, message),) = lasting.events
    assert (reason, "no right" in message) == ("OperatorError", True)


async def test_one_that_changes_with_every_try_makes_no_flood_of_events() -> None:
    trouble = Trouble()
    for number in range(20):
        error = ValueError(f"object {number}")
        await trouble.story.reconciler._repeated_errors.failed(error, tries=1, seen=None)
    assert len(trouble.events) == run_events.MAX_REPORTED


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (ValueError("token=abc123, done"), "ValueError: token=***, done"),
        (ValueError("s3://me:abc123@host/x"), "ValueError: s3://***@host/x"),
        (ValueError("Authorization: Bearer abc123"), "ValueError: Authorization: ***"),
        (ValueError("{'AWS_SECRET_ACCESS_KEY': 'abc123'}"), None),
        (ValueError("x" * 1000), f"ValueError: {'x' * (run_events.LONGEST_ERROR - 13)}…"),
    ],
)
def test_an_error_is_told_in_one_bounded_line_without_a_secret(
    error: Exception, told: str | None
) -> None:
    line = one_line(error)
    assert told in (None, line)
    assert "abc123" not in line


async def test_what_the_core_says_of_agents_is_not_written_over_again_and_again() -> None:
    """Each would be news to the other."""
    trouble = Trouble(ValueError("a bug"), ValueError("a bug"))
    said = Condition(
        type="OperatorError",
        status="True",
        reason="MessageUnreadable",
        message="one cannot be read",
        last_transition_time=datetime.now(UTC),
    )
    trouble.world.status = replace(trouble.world.status, conditions=(said,))
    await trouble.over()
    assert trouble.shown == ["one cannot be read"] * 3
    assert [reason for reason, _ in trouble.events] == ["OperatorError"]


async def test_a_pass_that_could_see_nothing_writes_no_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be that of an earlier pass, and what was written since would be gone."""
    trouble = Trouble(ValueError("a bug"))
    world, seen = trouble.world, trouble.world.observe
    looks = [seen, None, seen, seen]

    async def observe(agents: Agents) -> Seen:
        look = looks.pop(0) if looks else seen
        if look is None:
            world.status = replace(world.status, attempt=4)  # as written by the pass before
            raise RuntimeError("a bug in a fact")
        return await look(agents)

    monkeypatch.setattr(world, "observe", observe)
    await trouble.over()
    assert world.status.attempt == 4
