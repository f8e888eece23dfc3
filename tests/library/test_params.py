"""What a script of a trial is to try."""

from __future__ import annotations

import pytest

import trainrun


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("TRAINRUN_PARAMS", raising=False)
    return monkeypatch


@pytest.mark.usefixtures("given")
def test_outside_a_sweep_the_defaults_hold() -> None:
    assert trainrun.get_params() == {}
    assert trainrun.get_params({"lr": 0.1, "name": "sgd"}) == {"lr": 0.1, "name": "sgd"}


def test_what_the_trial_has_stands_over_the_defaults(given: pytest.MonkeyPatch) -> None:
    given.setenv("TRAINRUN_PARAMS", '{"lr": 1e-05, "layers": 4, "bias": true, "name": "adamw"}')
    found = trainrun.get_params({"lr": 0.1, "momentum": 0.9})
    assert found == {"lr": 1e-05, "layers": 4, "bias": True, "name": "adamw", "momentum": 0.9}


def test_a_whole_number_is_a_float_where_the_default_is_one(given: pytest.MonkeyPatch) -> None:
    given.setenv("TRAINRUN_PARAMS", '{"lr": 1, "layers": 1, "bias": true}')
    found = trainrun.get_params({"lr": 0.1, "layers": 2, "bias": 0.5})
    assert [type(value) for value in found.values()] == [float, int, bool]


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_what_is_no_json_object_is_named(given: pytest.MonkeyPatch, text: str) -> None:
    given.setenv("TRAINRUN_PARAMS", text)
    with pytest.raises(ValueError, match="TRAINRUN_PARAMS"):
        trainrun.get_params()
