"""No text that somebody writes makes a pass raise, whatever its code points and however long."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import WorkerObservation, a_run, an_agent, an_incident, seconds
from tests.support.levels import examples
from tests.support.texts import ANY_TEXT
from trainrun.contract.agent_state import (
    AgentState,
    Committed,
    Damaged,
    Notice,
    Offer,
    Problem,
    ProcessExit,
    Resolution,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import StagedStep
from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import load_trainrun
from trainrun_operator.api.run.status import json_object, json_size, status_from
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import Pending, Refused, WorkerLoss
from trainrun_operator.core.run.config import config_of

Path = tuple[str | int, ...]

TALKATIVE = an_agent(
    attempt=1,
    phase="Running",
    steps=(10,),
    metrics={"loss": 0.5, "stage": "warm-up"},
    exits=(
        ProcessExit(
            rank=0,
            code=1,
            exception="ValueError: x",
            kinds=("ValueError", "Exception"),
            raised_at="x.py:1",
            last_lines=("one", "two"),
        ),
    ),
    staged=(StagedStep(step=10, ranks=(0,), complete=True),),
    committed=Committed(id=CheckpointId(attempt=1, step=5)),
    notice=Notice(reason="SIGTERM", remaining=30.0),
    offer=Offer(attempt=2, address="10.0.0.1", port=20000),
    resolution=Resolution(
        attempt=2, outcome="Unavailable", message="away", set_aside=("x: bad",), run_id="abc234"
    ),
    problems=(Problem(type="StorageUnavailable", reason="Unavailable", message="away"),),
    fatal=Problem(type="CheckpointConflict", reason="CheckpointConflict", message="two files"),
    damaged=Damaged(id=CheckpointId(attempt=1, step=5), message="a bit"),
    seen="digest",
    serves="10.0.0.1:7000",
    serves_tls="10.0.0.1:7001",
    cold="rank 0: it has no standby yet",
)
"""An agent's state in which no text field is empty."""


def texts_in(message: Any, at: Path = ()) -> Iterator[Path]:
    """Where the texts stand in a message as JSON."""
    items = message.items() if isinstance(message, dict) else enumerate(message)
    for key, value in items:
        if isinstance(value, str):
            yield (*at, key)
        elif isinstance(value, dict | list):
            yield from texts_in(value, (*at, key))


def with_text(message: Any, path: Path, text: str) -> Any:
    changed = json.loads(json.dumps(message))
    owner = changed
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = text
    return changed


CLOSED = ("phase", "outcome")
"""Fields that are one of a few words."""
STATE = json.loads(TALKATIVE.to_json())
PLACES = [path for path in texts_in(STATE) if path[-1] not in CLOSED]


def passes(scene: WorkerObservation) -> None:
    """The pass over this scene does all that a pass does with texts."""
    plan = scene.plan
    written = json.dumps(json_object(plan.status), ensure_ascii=False).encode()
    assert status_from(json.loads(written)) == plan.status
    assert json_size(plan.status) < 16 * 1024
    for told in (plan.message, *(event.message for event in plan.events)):
        told.encode()
    for answer in plan.answers.values():
        answer.to_json().encode()


def stages(state: AgentState) -> Iterator[WorkerObservation]:
    """Everything that is decided about what an agent says."""
    running = a_run(max_failures=1).running()
    yield running.with_worker(0, agent=state)
    yield running.with_worker(0, agent=replace(state, fatal=None))
    calm = replace(state, fatal=None, damaged=None, exits=())
    yield running.with_worker(0, agent=replace(calm, notice=None))
    yield running.with_worker(0, agent=calm)
    ended = running.ended(an_incident())
    yield ended.with_worker(0, agent=replace(state, phase="Idle", fatal=None, damaged=None))
    yield running.with_status(attempt=0, start_record=None).with_worker(
        0, agent=replace(calm, attempt=0, phase="Idle")
    )


def test_every_text_field_of_the_protocol_is_tried() -> None:
    def fields(cls: type) -> set[str]:
        return {f.name for f in dataclasses.fields(cls) if "str" in str(f.type)}  # type: ignore[arg-type]

    tried = {part for path in PLACES for part in path if isinstance(part, str)}
    for cls in (AgentState, ProcessExit, Notice, Offer, Resolution, Problem, Damaged):
        assert fields(cls) - set(CLOSED) <= tried, cls


@pytest.mark.case("script", "Output or exceptions contain half characters or escapes")
@settings(max_examples=examples(120), deadline=None)
@given(path=st.sampled_from(PLACES), text=ANY_TEXT)
def test_no_text_of_an_agent_makes_a_pass_raise(path: Path, text: str) -> None:
    state = AgentState.from_json(json.dumps(with_text(STATE, path, text)))
    for scene in stages(state):
        passes(scene)


@settings(max_examples=examples(100), deadline=None)
@given(name=ANY_TEXT, value=ANY_TEXT)
def test_no_name_of_a_metric_makes_a_pass_raise(name: str, value: str) -> None:
    text = json.dumps({**STATE, "metrics": {name: value}})
    passes(a_run().running().with_worker(0, agent=AgentState.from_json(text)))


@settings(max_examples=examples(100), deadline=None)
@given(text=st.text(max_size=600))
def test_no_text_of_the_world_makes_a_pass_raise(text: str) -> None:
    """As the API server quotes kubelets, schedulers and webhooks: in UTF-8."""
    running = a_run(max_failures=1).running()
    gone = WorkerLoss(cause=Cause.NODE_LOST, message=text, age=seconds(1))
    passes(running.with_worker(0, loss=gone, node=text))
    passes(running.with_worker(0, notice=Notice(reason=text)))
    passes(running.silent(0, 31).with_worker(0, suspect_node=text))
    new = a_run()
    waits = Pending(kind="ImagePull", message=text, since=seconds(400))
    passes(new.waiting().with_worker(0, phase="Pending", agent=None, pending=waits))
    refused = Refused(slot=0, name="run-0-1", reason="Invalid", message=text, since=seconds(60))
    passes(new.refusing(refused))


RUN = {
    "apiVersion": "trainrun.dev/v1alpha1",
    "kind": "TrainRun",
    "metadata": {"name": "run", "uid": "uid"},
    "spec": {
        "workers": {
            "agent": "Inject",
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "containers": [
                        {
                            "name": "w",
                            "image": "i",
                            "command": ["c"],
                            "env": [{"name": "A", "value": "b"}],
                        }
                    ]
                },
            },
        },
        "storage": {
            "uri": "s3://bucket/prefix",
            "runName": "run",
            "endpointURL": "http://minio:9000",
            "region": "eu",
            "credentialsSecretRef": {"name": "keys"},
            "onExisting": "Resume",
        },
        "checkpoint": {"initialFrom": "s3://bucket/weights", "flushTimeout": "30s"},
        "health": {"heartbeatTimeout": "30s"},
        "activeDeadline": "24h",
    },
}


@pytest.mark.parametrize("path", list(texts_in(RUN)), ids=lambda path: ".".join(map(str, path)))
@settings(max_examples=examples(30), deadline=None)
@given(text=ANY_TEXT)
def test_no_text_of_a_spec_makes_a_pass_raise(path: Path, text: str) -> None:
    """It is refused with words that can be shown, or the run is led."""
    document = with_text(RUN, path, text)
    try:
        run = load_trainrun(json.dumps(document), source="run.yaml")
    except InvalidSpec as error:
        str(error).encode()
        return
    passes(replace(a_run().running(), config=config_of(run)))


def test_half_a_character_in_a_file_is_refused_with_its_place() -> None:
    text = (
        yaml.safe_dump(RUN)
        .replace("minio:9000", "minio:9000/\\udc80")
        .replace("endpointURL: ", 'endpointURL: "')
        .replace("\\udc80", '\\udc80"')
    )
    with pytest.raises(InvalidSpec, match=r"half a character \('\\udc80'\) after .*minio:9000/'"):
        load_trainrun(text, source="run.yaml")
