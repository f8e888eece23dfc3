"""The reference is what its sources say now, and says it about all of them."""

from __future__ import annotations

import click
import pytest
import yaml

import trainrun
from tests.docs.documents import ROOT, tables
from tools.reference.__main__ import main
from tools.reference.pages import PAGES
from trainrun_operator.api.crd import crd
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cli.commands import trainrun as command_line
from trainrun_operator.cluster.metrics import Metrics

FOLDER = ROOT / "docs" / "reference"


def first_column(page: str) -> set[str]:
    return {row[0].strip("`") for table in tables(PAGES[page]()) for row in table}


def field_names(schema: dict[str, object]) -> set[str]:
    """Of all objects below; those of an object that stands in two places once."""
    below = schema.get("properties", schema.get("items", {}))
    names = set(schema.get("properties", ()))
    children = below.values() if "properties" in schema else [below] if below else []
    return names.union(*(field_names(child) for child in children))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_sources_say(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "run `make reference`"


def test_there_are_no_other_pages() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


@pytest.mark.slow
def test_the_verb_writes_every_page(tmp_path) -> None:
    main(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == set(PAGES)


@pytest.mark.slow
@pytest.mark.parametrize("name", trainrun.__all__)
def test_every_public_name_of_the_library_has_a_heading(name: str) -> None:
    page = PAGES["library.md"]()
    assert f"### `{name}(" in page or f"### class `{name}" in page


def test_every_field_of_the_crd_has_a_row() -> None:
    schema = crd(TRAINRUN)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    wanted = field_names(schema["spec"]) | field_names(schema["status"])
    assert first_column("trainrun.md") == wanted


def test_every_verb_has_a_heading() -> None:
    below = command_line.commands["checkpoints"]
    assert isinstance(below, click.Group)
    for verb in (*command_line.commands, *(f"checkpoints {name}" for name in below.commands)):
        assert f"## `trainrun {verb}`" in PAGES["commands.md"]()


def test_every_metric_has_a_row() -> None:
    metrics = Metrics()
    metrics.follow(list)
    names = {family.name.removesuffix("_total") for family in metrics.registry.collect()}
    assert {name.removesuffix("_total") for name in first_column("metrics.md")} == names


def test_every_value_of_the_chart_has_a_row() -> None:
    values = yaml.safe_load((ROOT / "charts" / "trainrun" / "values.yaml").read_text())
    assert {path.partition(".")[0] for path in first_column("chart.md")} == set(values)
