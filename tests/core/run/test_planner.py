"""decide() as a whole: total, deterministic, blind to the order of workers, status first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, get_args

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.builders import BEGIN, HOUR, a_config, a_run
from tests.support.levels import examples
from trainrun.contract.agent_state import (
    AgentState,
    Committed,
    Damaged,
    Notice,
    Offer,
    Outcome,
    Problem,
    ProcessExit,
    Resolution,
    SaveVote,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import StagedStep
from trainrun_operator.api.run.status import (
    Condition,
    StartRecord,
    TrainRunStatus,
    json_object,
    status_from,
)
from trainrun_operator.api.run.status_parts import (
    Cause,
    Ending,
    EndingKind,
    Incident,
    Progress,
    SaveAsked,
)
from trainrun_operator.core.run.boundary import Observation, WorkerFact, WorkerLoss, WorkerPhase
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.planner import decide

T = TypeVar("T")


def built(make: Callable[..., T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Like st.builds(), which cannot read the signatures of models with aliases."""

    # The strategies stay out of sight of repr(): all of them together are 30 kB of text.
    @st.composite
    def one(draw: st.DrawFn) -> T:
        return make(**{name: draw(field) for name, field in fields.items()})

    return one()


# Small pools, so that numbers meet: attempts, slots, steps and calls coincide often.
attempts = st.integers(0, 4)
later_attempts = st.integers(1, 4)
slots = st.integers(0, 3)
numbers = st.integers(0, 5)
seconds = st.sampled_from([0.0, 1.0, 29.0, 40.0, 130.0, 700.0, 1e5])
spans = seconds.map(lambda number: timedelta(seconds=number))
moments = spans.map(lambda span: BEGIN + HOUR - span)
texts = st.sampled_from(
    [
        "",
        "x",
        "ValueError: bad",
        "Connection reset by peer",
        "EADDRINUSE",
        "StartFailed: x",
        "y" * 3000,
    ]
)
words = texts.filter(bool)
identities = st.sampled_from(["aaaa-1", "bbbb-2", ""])
checkpoints = st.builds(CheckpointId, attempt=later_attempts, step=numbers)

exits = built(
    ProcessExit,
    rank=slots,
    code=st.sampled_from([None, 0, 1, 137]),
    signal=st.sampled_from([None, 6, 9, 77]),
    oom=st.booleans(),
    exception=texts,
    last_lines=st.lists(texts, max_size=30).map(tuple),
    yielded=st.booleans(),
    ordered=st.booleans(),
    age=seconds,
)
staged = st.builds(
    StagedStep,
    step=numbers,
    ranks=st.sampled_from([(), (0,)]),
    complete=st.booleans(),
    uploaded=st.booleans(),
    whole=st.booleans(),
    after_save=st.booleans(),
)
votes = st.builds(
    SaveVote,
    calls=numbers,
    prepared=st.none() | numbers,
    refused=numbers,
    refusals=st.sampled_from([0, 1, 5, 1000]),
    committed=st.none() | numbers,
)
notices = st.builds(Notice, reason=words, age=seconds, remaining=st.none() | seconds)
resolutions = built(
    Resolution,
    attempt=attempts,
    outcome=st.sampled_from(get_args(Outcome)),
    resume=st.none() | checkpoints,
    highest_attempt=attempts,
    message=words,
)
problems = st.builds(
    Problem,
    type=st.sampled_from(["Complete", "StorageReady", "X", "T" * 90]),
    reason=words,
    message=words,
)
agents = built(
    AgentState,
    run=st.just("run"),
    run_uid=st.just("uid"),
    slot=slots,
    worker=st.just("anything"),
    created_for=numbers,
    agent=identities,
    sequence=st.just(1),
    node=st.just("n" * 300),
    phase=st.sampled_from(["Idle", "Running", "Flushing"]),
    attempt=attempts,
    exits=st.lists(exits, max_size=2).map(tuple),
    steps=st.lists(st.none() | numbers, max_size=2).map(tuple),
    staged=st.lists(staged, max_size=3).map(tuple),
    dropped=st.lists(numbers, max_size=2).map(tuple),
    committed=st.none() | st.builds(Committed, id=checkpoints),
    save=votes,
    notice=st.none() | notices,
    offer=st.none() | st.builds(Offer, attempt=attempts, address=st.just("a"), port=st.just(20000)),
    resolution=st.none() | resolutions,
    problems=st.lists(problems, max_size=2).map(tuple),
    fatal=st.none() | st.none() | problems,
    damaged=st.none() | st.builds(Damaged, id=checkpoints, message=words),
    finished=st.booleans(),
    first_step=st.none() | seconds,
)
losses = st.builds(WorkerLoss, cause=st.sampled_from(Cause), message=words, age=spans)
facts = built(
    WorkerFact,
    name=st.sampled_from([f"run-{letter}" for letter in "abcdef"]),
    slot=slots,
    created_for=numbers,
    template_hash=st.sampled_from(["t1", "t1", "t2"]),
    phase=st.sampled_from(get_args(WorkerPhase)),
    deleting=st.booleans(),
    age=spans,
    exit_code=st.none() | st.integers(0, 2),
    loss=st.none() | losses,
    notice=st.none() | st.none() | notices,
    agent=st.none() | agents | agents,
    silent_for=spans,
)
workers = st.lists(facts, max_size=6, unique_by=lambda fact: fact.name).map(tuple)

incidents = built(
    Incident,
    attempt=later_attempts,
    cause=st.sampled_from([*Cause, "Melted"]),
    budget=st.sampled_from(["failures", "preemptions", "none"]),
    counted=st.booleans(),
    rank=st.none() | slots,
    exit_code=st.sampled_from([None, 0, 1, 137, 255]),
    message=st.just("what happened"),
    collateral=st.booleans(),
    time=moments,
    restart_seconds=st.none() | seconds,
)
rosters = st.lists(
    st.tuples(numbers, st.sampled_from(["aaaa", "bbbb", ""])), min_size=1, max_size=3
)
records = built(
    lambda seats, **fields: StartRecord(
        roster=tuple(number for number, _ in seats),
        agents="".join(name.ljust(4) for _, name in seats),
        **fields,
    ),
    seats=rosters,
    attempt=later_attempts,
    world_size=st.just(2),
    resume_point=st.none() | built(CheckpointId, step=numbers, attempt=later_attempts),
    master_addr=st.just("a"),
    master_port=st.just(20000),
    template_hash=st.sampled_from(["t1", "t2"]),
    time=moments,
)
endings = built(
    Ending,
    attempt=attempts,
    kind=st.sampled_from(get_args(EndingKind)),
    time=moments,
    flush=st.lists(numbers, max_size=2).map(tuple),
    not_before=st.none() | moments,
)
conditions = built(
    Condition,
    type=st.sampled_from(["Complete", "Failed", "Suspended", "StorageReady", "Running", "X"]),
    status=st.sampled_from(["True", "False", "False", "Unknown"]),
    reason=st.sampled_from(["StorageUnavailable", "StorageMisconfigured", "X"]),
    message=words.map(lambda text: text[:2000]),
    last_transition_time=moments,
)


def a_status(**fields: Any) -> TrainRunStatus:
    """The newest start record is that of the newest attempt: we write no other statuses."""
    record: StartRecord | None = fields["start_record"]
    if record is not None:
        fields["attempt"] = record.attempt
    return TrainRunStatus(**fields)


statuses = built(
    a_status,
    conditions=st.lists(conditions, max_size=3, unique_by=lambda c: c.type).map(tuple),
    attempt=attempts,
    start_record=st.none() | records | records,
    ending=st.none() | endings,
    save_asked=st.none()
    | built(SaveAsked, attempt=later_attempts, reason=st.just("why"), time=moments),
    incident=st.none() | incidents,
    incidents=st.lists(incidents, max_size=2).map(tuple),
    restarts=numbers,
    fruitless=st.sampled_from([0, 1, 4, 2000]),
    progress=built(Progress, step=st.none() | numbers, time=st.none() | moments),
    start_time=st.none() | moments | moments,
    completion_time=st.none() | moments,
)
observations = built(
    Observation,
    now=st.just(BEGIN + HOUR),
    status=statuses,
    workers=workers,
    listening_for=spans,
)
configs = built(
    a_config,
    replicas=st.integers(1, 3),
    processes_per_worker=st.integers(1, 2),
    suspend=st.booleans(),
    max_failures=st.sampled_from([-1, 0, 1]),
    max_preemptions=st.sampled_from([None, -1, 0]),
    backoff_factor=st.sampled_from([1.0, 10.0]),
    backoff_initial=spans,
    backoff_max=spans,
    max_pending=st.integers(1, 2),
    upload_every=st.none() | spans,
    active_deadline=st.none() | st.none() | spans,
    ttl_after_finished=st.none() | spans,
)
thorough = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)


@thorough
@given(observation=observations, config=configs)
@example(observation=a_run().running().observation, config=a_config())
def test_decide_has_an_answer_to_everything(observation: Observation, config: RunConfig) -> None:
    """However senseless the facts are: one plan, the same again, that can be carried out."""
    plan = decide(observation, config)
    assert plan == decide(observation, config)
    assert plan.reason
    assert plan.message
    # What is written must be accepted when it is read again.
    status_from(json_object(plan.status))
    if plan.transition:
        assert (plan.actions, dict(plan.answers)) == ((), {})
    assert {action.name for action in plan.actions if hasattr(action, "name")}.isdisjoint({""})
    for answer in plan.answers.values():
        assert answer.digest


@thorough
@given(observation=observations, config=configs, chance=st.randoms(use_true_random=False))
def test_the_order_of_the_workers_changes_nothing(
    observation: Observation, config: RunConfig, chance: object
) -> None:
    shuffled = list(observation.workers)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(replace(observation, workers=tuple(shuffled)), config) == decide(
        observation, config
    )


@thorough
@given(observation=observations, config=configs)
def test_counters_never_go_down_and_a_verdict_stays(
    observation: Observation, config: RunConfig
) -> None:
    before, after = observation.status, decide(observation, config).status
    assert after.attempt >= before.attempt
    assert after.restarts >= before.restarts
    assert after.failures.counted >= before.failures.counted
    assert after.failures.preemptions >= before.failures.preemptions
    if before.finished:
        assert after.is_true("Complete") == before.is_true("Complete")
        assert after.is_true("Failed") == before.is_true("Failed")


@thorough
@given(observation=observations, config=configs)
def test_decisions_come_to_rest(observation: Observation, config: RunConfig) -> None:
    """While nothing happens, the statuses that are written lead to a plan that writes none."""
    for _ in range(12):
        plan = decide(observation, config)
        if not plan.transition:
            return
        observation = replace(observation, status=plan.status)
    raise AssertionError(f"still {plan.reason}: {plan.message}")
