"""What the models promise beyond the table of specs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import Field, ValidationError

from tests.api.spec_table import BASE, changed
from trainrun_operator.api.base import Model
from trainrun_operator.api.duration import Duration
from trainrun_operator.api.loading import load_trainrun
from trainrun_operator.api.problems import description_at, field_at, model_at, sentences
from trainrun_operator.api.resources import ObjectMeta, TrainRun
from trainrun_operator.api.run.spec import BackoffSpec, FailurePolicy
from trainrun_operator.api.run.status import (
    Condition,
    ConditionStatus,
    StartRecord,
    TrainRunStatus,
    json_object,
    json_size,
    status_from,
)
from trainrun_operator.api.run.status_parts import Incident

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def condition(kind: str, status: ConditionStatus) -> Condition:
    return Condition(type=kind, status=status, reason="R", last_transition_time=NOON)


def test_a_model_cannot_be_changed() -> None:
    policy = FailurePolicy(max_failures=3)

    with pytest.raises(ValidationError, match="frozen"):
        policy.max_failures = 4  # type: ignore[misc]


def test_rules_hold_for_models_made_in_python_too() -> None:
    with pytest.raises(ValidationError, match=r"must not be shorter than backoff\.initial"):
        BackoffSpec(initial=Duration("10s"), max=Duration("5s"))


def test_what_the_api_server_sends_is_read_with_its_own_metadata() -> None:
    document = changed(
        {"metadata.uid": "u-1", "metadata.generation": 4, "metadata.managedFields": []}
    )

    run = TrainRun.model_validate(document)

    assert (run.metadata.uid, run.metadata.generation) == ("u-1", 4)
    assert (run.metadata.namespace, run.metadata.labels) == ("default", {})


def test_a_run_survives_being_written_and_read() -> None:
    run = load_trainrun(json.dumps(BASE), source="run.yaml")

    assert TrainRun.model_validate(run.to_json_object()) == run


def test_a_status_survives_being_written_and_read() -> None:
    status = TrainRunStatus(conditions=(condition("Running", "True"),), start_time=NOON)

    assert status_from(json.loads(json.dumps(json_object(status)))) == status


def test_what_only_a_newer_operator_knows_in_a_status_is_skipped() -> None:
    status = status_from(
        {"attempt": 3, "elastic": {"size": 4}, "failures": {"counted": 1, "windowed": 9}}
    )

    assert (status.attempt, status.failures.counted) == (3, 1)
    assert "elastic" not in json_object(status)


def test_a_phase_that_only_a_newer_operator_knows_stops_nobody() -> None:
    status = status_from({"phase": "Resizing"})

    assert status.phase == "Resizing"
    assert json_object(status)["phase"] == "Resizing"


def test_the_identity_of_a_slot_is_its_part_of_all_identities() -> None:
    record = StartRecord(
        attempt=1,
        roster=(1, 1, 1),
        agents="abcdx   0123",
        world_size=3,
        master_addr="10.0.0.1",
        master_port=20000,
        template_hash="t",
        time=NOON,
    )

    assert [record.identity(slot) for slot in range(3)] == ["abcd", "x", "0123"]


def test_the_size_of_a_status_is_that_of_its_json_in_utf_8() -> None:
    status = TrainRunStatus(reason="größer")
    text = json.dumps(json_object(status), ensure_ascii=False, separators=(",", ":"))

    assert json_size(status) == len(text.encode())


@pytest.mark.parametrize(
    ("conditions", "finished"),
    [
        ((), False),
        ((condition("Running", "True"),), False),
        ((condition("Complete", "False"),), False),
        ((condition("Complete", "True"),), True),
        ((condition("Failed", "True"),), True),
    ],
)
def test_a_run_is_finished_when_it_is_complete_or_failed(
    conditions: tuple[Condition, ...], finished: bool
) -> None:
    assert TrainRunStatus(conditions=conditions).finished is finished


def test_places_inside_free_mappings_belong_to_no_field() -> None:
    labels = ("metadata", "labels", "team", "x")

    assert model_at(TrainRun, ("metadata",)) is ObjectMeta
    assert model_at(TrainRun, labels) is None
    assert field_at(TrainRun, labels) is None
    assert description_at(TrainRun, labels) == ""


def test_an_error_of_a_new_kind_is_told_in_pydantic_s_words() -> None:
    class Even(Model):
        number: int = Field(multiple_of=2)

    with pytest.raises(ValidationError) as caught:
        Even(number=3)

    (error,) = caught.value.errors()
    assert list(sentences(error, Even)) == ["number: 3: Input should be a multiple of 2"]


def test_a_missing_field_without_a_docstring_is_told_as_well() -> None:
    class Bare(Model):
        number: int

    with pytest.raises(ValidationError) as caught:
        Bare.model_validate({})

    (error,) = caught.value.errors()
    assert list(sentences(error, Bare)) == ["number: is missing: a value is needed"]


def test_nothing_is_known_where_there_is_no_model() -> None:
    class Holder(Model):
        free: dict[str, int] = Field(default_factory=dict)

    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"free": {"a": "x"}})

    (error,) = caught.value.errors()
    assert error["loc"] == ("free", "a")
    assert model_at(Holder, ("free",)) is None


def test_an_incident_without_output_says_nothing_of_last_lines() -> None:
    """`kubectl describe` showed an empty `Last Lines:`."""
    silent = Incident(attempt=1, cause="NodeLost", time=NOON)
    written = json_object(TrainRunStatus(incident=silent))
    assert "lastLines" not in written["internal"]["incident"]
    assert status_from(written).incident == silent
    told = replace(silent, last_lines=("bad",))
    assert json_object(TrainRunStatus(incident=told))["internal"]["incident"]["lastLines"] == [
        "bad"
    ]
