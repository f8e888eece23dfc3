"""Objects of a cluster that are nested deeper than anything that can be used."""

from __future__ import annotations

import pytest

from tests.api.spec_table import changed
from trainrun_operator.api.loading import InvalidFile, read
from trainrun_operator.api.resources import TRAINRUN


def nested(levels: int) -> object:
    value: object = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def problems_of_the_server_s(changes: dict[str, object]) -> list[str]:
    """Of an object that came from the API server: no YAML has to be read."""
    with pytest.raises(InvalidFile) as caught:
        read(changed(changes), TRAINRUN, source="team/digits")
    return list(caught.value.problems)


@pytest.mark.parametrize("levels", [120, 250, 900, 20_000])
def test_a_template_that_is_nested_too_deep_is_refused_with_its_place(levels: int) -> None:
    """One such TrainRun, in any namespace, ended the operators of the whole cluster."""
    deep = nested(levels)
    assert problems_of_the_server_s({"spec.workers.template.spec.deep": deep}) == [
        "spec.workers.template.spec.deep: is nested more than 100 levels deep"
    ]
    place = "spec.workers.template.spec.containers"
    container = {"name": "a", "command": ["b"], "deep": deep}
    assert problems_of_the_server_s({place: [container]}) == [
        f"{place}: is nested more than 100 levels deep"
    ]


def test_what_is_nested_less_deep_is_passed_on() -> None:
    document = changed({"spec.workers.template.spec.deep": nested(90)})
    run = read(document, TRAINRUN, source="team/digits")
    assert run.spec.workers.template.as_dict()["spec"]["deep"] == nested(90)


def test_a_text_that_cannot_be_read_at_all_is_told_and_ends_nothing() -> None:
    found = problems_of_the_server_s({"metadata.odd": nested(250), "spec.suspend": "yes"})
    assert len(found) == 1
    assert found[0].startswith("the text cannot be read: Invalid JSON: recursion limit exceeded")
