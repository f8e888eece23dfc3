"""Objects that the API server holds, some of them of the version that comes next."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.spec_table import VALID, Case, changed
from trainrun_operator.api.loading import InvalidFile, read
from trainrun_operator.api.problems import without_unknown
from trainrun_operator.api.resources import TRAINRUN


def stored(document: dict[str, Any]) -> Any:
    return read(document, TRAINRUN, source="team/digits", stored=True)


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_of_what_is_known_nothing_is_left_out(case: Case) -> None:
    document = changed(case.changes)
    assert without_unknown(document, TRAINRUN.model) == document


def test_what_a_newer_crd_fills_in_is_left_out_at_any_depth() -> None:
    newer: dict[str, object] = {
        "spec.patience": "5m",
        "spec.failurePolicy": {"maxFailures": 2, "backoff": {"initial": "2s", "shape": "flat"}},
        "spec.failurePolicy.rules": [{"action": "FailRun", "causes": ["AppError"], "note": "x"}],
    }
    policy = stored(changed(newer)).spec.failure_policy
    assert (policy.max_failures, policy.backoff.initial.seconds) == (2, 2)
    assert policy.rules[0].action == "FailRun"


def test_in_a_file_the_same_field_is_an_error() -> None:
    with pytest.raises(InvalidFile) as caught:
        read(changed({"spec.patience": "5m"}), TRAINRUN, source="run.yaml")
    (problem,) = caught.value.problems
    assert problem.startswith("spec.patience: unknown field; known here: ")


def test_a_value_that_is_not_known_is_told_as_ever() -> None:
    with pytest.raises(InvalidFile) as caught:
        stored(changed({"spec.patience": "5m", "spec.checkpoint.onNotice": "Later"}))
    (problem,) = caught.value.problems
    assert problem.startswith('spec.checkpoint.onNotice: "Later" is not known; it must be ')
