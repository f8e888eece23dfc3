"""What is made of posts in Kubeflow Trainer's protocol, and of what only looks like one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.builders import an_agent
from tests.support.levels import examples
from trainrun.agent.training.posted_progress import MalformedPost, Posting
from trainrun.contract.agent_state import AgentState
from trainrun.contract.evidence import Posted


def a_post(percent: object = None, **metrics: object) -> bytes:
    """As transformers writes it: values are texts."""
    status: dict[str, Any] = {"lastUpdatedTime": "2026-01-01T00:00:00+00:00"}
    if percent is not None:
        status["progressPercentage"] = percent
    if metrics:
        status["metrics"] = [{"name": k, "value": str(v)} for k, v in metrics.items()]
    return json.dumps({"trainerStatus": status}).encode()


def after(*posts: tuple[float, bytes]) -> Posted:
    """What is known after these posts, each with its moment."""
    posting = Posting()
    for now, body in posts:
        posting.take(body, now)
    assert posting.posted is not None
    return posting.posted


def test_a_trainer_that_begins_tells_only_how_many_steps_there_are() -> None:
    assert after((0.0, a_post(0, total_steps=500))) == Posted(total=500)


def test_steps_and_metrics_come_as_texts_and_are_numbers_again() -> None:
    body = a_post(
        5, loss=0.25, grad_norm="nan", current_step=25, total_steps=500, current_epoch=1.5
    )
    assert after((0.0, body)) == Posted(
        step=25,
        total=500,
        percent=5,
        metrics={"loss": 0.25, "grad_norm": {"float": "NaN"}, "current_epoch": 1.5},
    )


def test_the_time_left_is_that_of_the_remaining_steps_at_the_speed_of_this_attempt() -> None:
    at_20 = (10.0, a_post(20, current_step=20, total_steps=100))
    at_60 = (50.0, a_post(60, current_step=60, total_steps=100))
    assert after(at_20).remaining is None
    assert after(at_20, at_60).remaining == 40.0


def test_after_a_resume_the_steps_of_earlier_attempts_make_it_no_faster() -> None:
    """transformers divides the seconds of this process by all steps of the run."""
    begin = (0.0, a_post(0, total_steps=1000))
    first = (9.0, a_post(90, current_step=901, total_steps=1000))
    later = (19.0, a_post(91, current_step=911, total_steps=1000))
    assert after(begin, first).remaining is None
    assert after(begin, first, later).remaining == 89.0


def test_the_end_is_100_per_cent_at_the_last_step_that_was_posted() -> None:
    last = (5.0, a_post(99, loss=0.5, current_step=498, total_steps=500))
    end = (6.0, a_post(100, train_loss=0.75))
    assert after(last, end) == Posted(
        step=498, total=500, percent=100, metrics={"train_loss": 0.75}, remaining=0.0
    )


def test_a_second_training_in_the_same_process_begins_anew() -> None:
    last = (5.0, a_post(99, loss=0.5, current_step=498, total_steps=500))
    again = (9.0, a_post(0, total_steps=50))
    assert after(last, (6.0, a_post(100)), again) == Posted(total=50)


def test_steps_that_go_back_are_counted_from_there() -> None:
    at_60 = (0.0, a_post(60, current_step=60, total_steps=100))
    at_10 = (5.0, a_post(10, current_step=10, total_steps=100))
    at_20 = (15.0, a_post(20, current_step=20, total_steps=100))
    assert after(at_60, at_10).remaining is None
    assert after(at_60, at_10, at_20).remaining == 80.0


def test_who_posts_a_percentage_alone_is_shown_by_it() -> None:
    assert after((0.0, a_post(10)), (10.0, a_post(20))) == Posted(percent=20, remaining=80.0)


def test_a_post_without_metrics_keeps_those_that_are_known() -> None:
    assert after((0.0, a_post(10, loss=0.5)), (9.0, a_post(20))).metrics == {"loss": 0.5}


@pytest.mark.parametrize(
    "step", [-1, 2**53 + 1, 1.5, "nan", "inf", "12 steps", True, 10**400, "", "1e400"]
)
def test_a_step_that_is_none_is_not_told(step: object) -> None:
    posted = after((0.0, a_post(5, current_step=step, total_steps=100)))
    assert (posted.step, posted.percent, posted.metrics) == (None, None, {})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b"\xff",
        b'{"trainerStatus": []}',
        b'{"trainerStatus": {"metrics": 7}}',
        b'{"trainerStatus": {"metrics": [{"name": "a"}]}}',
        b'{"trainerStatus": {"metrics": [{"name": [], "value": "1"}]}}',
        b"[" * 60_000,
    ],
)
def test_what_is_no_post_is_refused_in_words(body: bytes) -> None:
    posting = Posting()
    with pytest.raises(MalformedPost, match='"progressPercentage", "metrics"}} was expected'):
        posting.take(body, 0.0)
    assert posting.posted is None


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), SCALARS)
NAMES = st.sampled_from(["current_step", "total_steps", "loss"]) | st.text()
POSTS = st.fixed_dictionaries(
    {},
    optional={
        "progressPercentage": VALUES | st.integers(0, 100),
        "metrics": st.lists(st.fixed_dictionaries({"name": NAMES, "value": VALUES})) | VALUES,
    },
)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.floats(0.0, 1e9), POSTS | VALUES), max_size=4))
def test_no_post_makes_a_heartbeat_that_the_operator_cannot_read(
    posts: list[tuple[float, object]],
) -> None:
    posting = Posting()
    for now, status in sorted(posts, key=lambda it: it[0]):
        try:
            posting.take(json.dumps({"trainerStatus": status}).encode(), now)
        except MalformedPost:
            pass
    state = an_agent(attempt=1, posted=posting.posted)
    read = AgentState.from_json(state.to_json())
    if posting.posted is None:
        assert read.posted is None
    else:
        assert read.posted is not None
        assert read.posted.step == posting.posted.step
        assert read.posted.percent in (None, *range(101))
