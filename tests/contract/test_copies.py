"""A message with some fields changed is what `dataclasses.replace` makes of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.test_ages import STATE
from trainrun.contract.answer import Answer, Hold, Start
from trainrun.contract.copies import changed

START = Start(attempt=3, workers=2, world_size=2, master_addr="10.0.0.1", master_port=20000)


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (STATE, {}),
        (STATE, {"sequence": 8, "spawned": None}),
        (START, {"attempt": 4}),
        (Answer(order=START), {"order": Hold(attempt=2), "progress": 5.0}),
    ],
)
def test_a_copy_is_equal_to_what_replace_makes(message: Any, fields: dict[str, Any]) -> None:
    before = dataclasses.replace(message)
    assert changed(message, **fields) == dataclasses.replace(message, **fields)
    assert message == before
    assert hash(changed(START)) == hash(START)


def test_a_copy_cannot_be_changed_either() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed(START).attempt = 4  # type: ignore[misc]


def test_a_field_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError):
        changed(START, colour="red")


@dataclass(frozen=True, slots=True)
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        assert self.low <= self.high


def test_what_checks_its_fields_when_it_is_made_is_not_copied_past_that() -> None:
    with pytest.raises(TypeError, match="Checked"):
        changed(Checked(1, 2), low=3)
