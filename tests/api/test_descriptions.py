"""What stands below a field: found by name, through bases, and read only when it is asked for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import dataclass

import pytest

from trainrun_operator.api.base import descriptions


@dataclass
class Base:
    wheels: int = 4
    """How many it has,
    the spare one included."""
    doors: int = 2
    seats: int = 5
    """How many may sit."""

    def drive(self) -> None: ...


@dataclass
class Car(Base):
    seats: int = 7
    """How many may sit in this one."""


def test_a_field_has_the_text_below_it_and_a_nearer_class_has_the_word() -> None:
    assert descriptions(Car) == {
        "wheels": "How many it has,\nthe spare one included.",
        "seats": "How many may sit in this one.",
    }


def test_without_sources_nothing_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Hidden:
        wheels: int = 4
        """How many it has."""

    def lost(_cls: type) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", lost)
    assert descriptions(Hidden) == {}


@pytest.mark.slow
def test_a_command_that_starts_reads_no_sources() -> None:
    program = (
        "import inspect, trainrun_operator.api.base as it;"
        "inspect.getsource = inspect.findsource = None;"
        "import trainrun_operator.cli.run;"
        "assert it._below_fields.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
