"""An upgrade reads what version 0.1.0 wrote: nothing is forgotten, nothing counted twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainrun_operator.api.loading import InvalidFile, load_trainrun, read
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run import former
from trainrun_operator.api.run.status_json import is_stripped, json_object, status_from
from trainrun_operator.core.run.config import template_hash

RECORDED = Path(__file__).parents[1] / "recorded"
STATUSES = sorted(RECORDED.glob("status-0.1.0-*.json"))
SPEC = RECORDED / "trainrun-0.1.0.json"


def recorded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def in_old_places(status: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in status.items() if name != "internal"}
    return {**shown, **status["internal"]}


def test_the_recorded_statuses_hold_all_that_an_operator_remembers() -> None:
    held: set[str] = set().union(*(recorded(path) for path in STATUSES))

    assert len(STATUSES) >= 4
    assert {"startRecord", "ending", "incident", "saveAsked", "fruitless"} <= held


@pytest.mark.parametrize("path", STATUSES, ids=lambda path: path.stem)
def test_a_status_of_the_version_before_is_read_as_it_was_meant(path: Path) -> None:
    status = status_from(recorded(path))

    written = json_object(status)
    assert in_old_places(written) == recorded(path)
    assert status_from(json.loads(json.dumps(written))) == status


def test_an_attempt_that_runs_over_the_upgrade_keeps_its_start_record() -> None:
    status = status_from(recorded(RECORDED / "status-0.1.0-running.json"))

    assert status.start_record is not None
    assert (status.attempt, status.start_record.attempt) == (2, 2)
    assert [(i.cause, i.counted) for i in status.incidents] == [("AppError", True)]
    assert (status.failures.counted, status.ending, status.incident) == (1, None, None)


def test_an_incident_that_is_open_over_the_upgrade_stays_open_and_uncounted() -> None:
    status = status_from(recorded(RECORDED / "status-0.1.0-ending.json"))

    assert status.ending is not None
    assert status.incident is not None
    assert (status.ending.attempt, status.ending.kind) == (1, "Incident")
    assert (status.incident.cause, status.incident.counted) == ("AppError", False)
    assert (status.failures.counted, status.failures.text) == (0, "1/3")


def test_a_placement_of_the_version_before_is_read() -> None:
    status = status_from(
        {"attempt": 0, "placement": {"tries": 2, "notBefore": "2026-01-01T00:00:00Z"}}
    )

    assert status.placement is not None
    assert status.placement.tries == 2


def test_old_places_say_nothing_beside_the_new_one() -> None:
    written = json_object(status_from(recorded(RECORDED / "status-0.1.0-running.json")))
    stale = recorded(RECORDED / "status-0.1.0-ending.json")

    status = status_from({**written, "ending": stale["ending"], "incident": stale["incident"]})

    assert (status.ending, status.incident) == (None, None)


def test_a_spec_of_the_version_before_is_read_from_the_api_server() -> None:
    run = read(former.with_new_names(recorded(SPEC)), TRAINRUN, source="the server")

    assert run.spec.storage.endpoint_url == "http://minio:9000"
    assert run.spec.storage.credentials_secret_ref is not None
    assert run.spec.storage.credentials_secret_ref.name == "s3-keys"


def test_the_same_template_has_the_same_hash_as_in_the_version_before() -> None:
    """A gang whose hash changed would be stopped and made anew."""
    run = read(former.with_new_names(recorded(SPEC)), TRAINRUN, source="the server")

    assert template_hash(run.spec.workers) == "b6fbd615f6d8"


def test_new_names_win_where_both_stand() -> None:
    document = recorded(SPEC)
    document["spec"]["storage"] |= {
        "endpointURL": "http://new:9000",
        "credentialsSecretRef": {"name": "new"},
    }

    storage = former.with_new_names(document)["spec"]["storage"]

    assert storage["endpointURL"] == "http://new:9000"
    assert storage["credentialsSecretRef"] == {"name": "new"}
    assert former.STORAGE_NAMES.keys().isdisjoint(storage)


@pytest.mark.parametrize("old", sorted(former.STORAGE_NAMES))
def test_one_old_name_alone_is_read(old: str) -> None:
    document = recorded(SPEC)
    (other,) = former.STORAGE_NAMES.keys() - {old}
    del document["spec"]["storage"][other]

    storage = former.with_new_names(document)["spec"]["storage"]

    assert former.STORAGE_NAMES[old] in storage
    assert former.STORAGE_NAMES[other] not in storage


@pytest.mark.parametrize("broken", [{}, {"spec": 1}, {"spec": {"storage": []}}])
def test_what_is_no_storage_is_left_to_the_check_of_the_fields(broken: dict[str, Any]) -> None:
    assert former.with_new_names(broken) == broken


def test_a_file_with_the_old_names_is_told_the_new_ones() -> None:
    with pytest.raises(InvalidFile) as caught:
        load_trainrun(SPEC.read_text(), source="run.yaml")

    assert caught.value.problems == (
        "spec.storage.endpointUrl: unknown field; did you mean endpointURL?",
        "spec.storage.credentialsSecret: unknown field; did you mean credentialsSecretRef?",
    )


@pytest.mark.parametrize("path", STATUSES, ids=lambda path: path.stem)
def test_a_status_that_a_crd_shows_without_what_it_remembers_is_known_as_such(path: Path) -> None:
    """The CRD of 0.1.0, still served for a while, hides `internal`."""
    whole = json_object(status_from(recorded(path)))
    hidden = {name: value for name, value in whole.items() if name != "internal"}

    assert is_stripped(hidden)
    assert not is_stripped(whole)
    assert not is_stripped(recorded(path))


def test_a_run_that_has_no_status_yet_is_shown_whole() -> None:
    assert not is_stripped({})
