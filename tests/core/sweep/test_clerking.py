"""What a sweep's operator and its clerk tell each other arrives as it was said, or is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.sweeps import asked, begun, reported, told
from trainrun.contract.agent_config import BadConfig, StorageConfig
from trainrun.contract.variables import CLERK_CONFIG
from trainrun.contract.wire import MalformedMessage
from trainrun.sweep.records import EndedRun, LogEntry, Targets
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import (
    ClerkConfig,
    ClerkOrders,
    ClerkState,
    piece,
    with_remedy,
)

RECORDS = tuple(
    LogEntry(it) for it in (begun(), asked(0), reported(0, s1=0.25), told(0, value="0.5"))
)
STATE = ClerkState(
    sweep_uid="uid-1",
    position=4,
    sent_after=0,
    records=RECORDS,
    trouble=ClerkUnknown(reason="LogDamaged", message="object 7 is missing"),
    seen="abc",
)
ORDERS = ClerkOrders(
    known=4,
    spec={"budget": {"trials": 3}},
    targets=Targets(
        session=begun(),
        asked=2,
        ended=(EndedRun(0, 1, succeeded=True),),
    ),
    working=True,
)


def test_what_a_clerk_says_arrives_as_it_was_said() -> None:
    assert ClerkState.from_json(json.loads(STATE.to_json())) == STATE


def test_what_an_operator_answers_arrives_as_it_was_said() -> None:
    assert ClerkOrders.from_json(ORDERS.to_json()) == ORDERS


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({}, "ClerkState: field sweep_uid is missing"),
        ({"sweep_uid": "u", "position": "4"}, "position"),
        ({"sweep_uid": "u", "records": [{"record": {"kind": "Ask"}}]}, r"records\[0\].record"),
        ({"sweep_uid": "u", "position": 10**30}, "position: .*an integer up to"),
    ],
)
def test_what_no_clerk_says_is_refused_with_its_field(said: dict[str, Any], refusal: str) -> None:
    with pytest.raises(MalformedMessage, match=refusal):
        ClerkState.from_json(said)


def test_an_answer_that_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        ClerkOrders.from_json("<html>Bad Gateway</html>")


def test_orders_are_the_same_whatever_of_the_log_is_known_and_others_otherwise() -> None:
    assert replace(ORDERS, known=0).digest == ORDERS.digest
    assert replace(ORDERS, working=False).digest != ORDERS.digest
    assert replace(ORDERS, targets=None).digest != ORDERS.digest


def test_a_piece_of_the_log_has_as_many_records_as_fit_and_at_least_one() -> None:
    assert piece(RECORDS) == RECORDS
    assert piece(RECORDS, room=1) == RECORDS[:1]
    assert piece(()) == ()


CONFIG = ClerkConfig(
    sweep="team/search",
    sweep_uid="uid-1",
    storage=StorageConfig(uri="s3://bucket/sweeps", run_name="search"),
    operator_url="https://operator:8443",
)


def test_a_clerk_reads_what_it_was_told() -> None:
    assert ClerkConfig.read({CLERK_CONFIG: CONFIG.to_json()}) == CONFIG


@pytest.mark.parametrize("environ", [{}, {CLERK_CONFIG: ""}])
def test_a_clerk_that_nobody_made_says_who_makes_clerks(environ: dict[str, str]) -> None:
    with pytest.raises(
        BadConfig, match=f"^{CLERK_CONFIG} is not set; only the operator starts clerks"
    ):
        ClerkConfig.read(environ)


@pytest.mark.parametrize("text", ["{", '{"sweep": 1}'])
def test_a_clerk_says_which_variable_cannot_be_read(text: str) -> None:
    with pytest.raises(BadConfig, match=f"^{CLERK_CONFIG} cannot be read: "):
        ClerkConfig.read({CLERK_CONFIG: text})


def test_a_refused_clerk_names_the_field_to_correct_and_all_else_stays_as_it_was_told() -> None:
    away = ClerkUnknown(reason="StorageUnavailable", message="no route")
    assert with_remedy(away, secret="keys") == away
    refused = ClerkUnknown(reason="StorageMisconfigured", message="InvalidAccessKeyId")
    assert "credentials of spec.storage.credentialsSecretRef (Secret keys), or" in (
        with_remedy(refused, secret="keys").message
    )
    assert "credentials of spec.run.workers.template, or" in with_remedy(refused, secret="").message
