"""The status of a sweep is read as it was written; one that somebody edited by hand is refused."""

from __future__ import annotations

import json

import pytest

from trainrun_operator.api.sweep.status import BestTrial, TrainSweepStatus, json_object, status_from


def test_what_was_written_is_read_again() -> None:
    best = BestTrial(trial=2, value="0.25", step=7, params={"lr": 0.1, "optimizer": "sgd"})
    status = TrainSweepStatus(phase="Running", reason="", best=best)

    assert status_from(json.loads(json.dumps(json_object(status)))) == status


def test_a_field_that_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match=r"best\.step\n.*integer"):
        status_from({"phase": "Running", "best": {"trial": 2, "value": "0.25", "step": "seven"}})
