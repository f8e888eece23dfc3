"""The models and the CRD agree on every row of the table."""

from __future__ import annotations

import json

import pytest

from tests.api.spec_table import CHANGES, INVALID, VALID, Case, Change, changed
from tests.support.admission import refusals
from trainrun_operator.api.crd import crd
from trainrun_operator.api.loading import InvalidFile, load_trainrun
from trainrun_operator.api.resources import TRAINRUN

CRD = crd(TRAINRUN)


def by_name(row: Case | Change) -> str:
    return row.name


@pytest.mark.parametrize("case", VALID, ids=by_name)
def test_the_models_take_it(case: Case) -> None:
    run = load_trainrun(json.dumps(case.document), source="run.yaml")

    again = load_trainrun(json.dumps(run.to_json_object()), source="again.yaml")
    assert again == run


@pytest.mark.parametrize("case", VALID, ids=by_name)
def test_the_crd_takes_it(case: Case) -> None:
    assert refusals(CRD, case.document) == set()


@pytest.mark.parametrize("case", INVALID, ids=by_name)
def test_the_models_refuse_it_and_say_where_and_why(case: Case) -> None:
    with pytest.raises(InvalidFile) as caught:
        load_trainrun(json.dumps(case.document), source="run.yaml")

    assert sorted(caught.value.problems) == sorted(case.problems)


@pytest.mark.parametrize("case", INVALID, ids=by_name)
def test_the_crd_refuses_it_at_the_same_place(case: Case) -> None:
    refused = refusals(CRD, case.document)

    assert refused
    # Rules are only looked at when all types are right, so the server may name fewer at once.
    assert refused <= case.paths


@pytest.mark.parametrize("change", CHANGES, ids=by_name)
def test_the_crd_lets_pass_only_changes_that_a_run_can_follow(change: Change) -> None:
    refused = refusals(CRD, changed(change.after), old=changed(change.before))

    assert refused == change.refused
