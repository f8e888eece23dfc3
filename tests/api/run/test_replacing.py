"""The quick `replace` gives what that of the standard library gives."""

from __future__ import annotations

import dataclasses

import pytest

from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Workers


@pytest.mark.parametrize("whole", [TrainRunStatus(attempt=3), Workers(ready=3)])
def test_a_copy_differs_in_the_replaced_field_alone(whole: TrainRunStatus | Workers) -> None:
    name = "attempt" if isinstance(whole, TrainRunStatus) else "ready"
    copy = replace(whole, **{name: 4})
    assert copy == dataclasses.replace(whole, **{name: 4})
    assert getattr(whole, name) == 3
    assert type(copy) is type(whole)
