"""A second resource is a row and a model: shown with one that exists in this test alone."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field

from tests.support.kstatus import kstatus
from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import API_VERSION, Model
from trainrun_operator.api.crd import RESOURCES, crd, crd_yaml
from trainrun_operator.api.loading import InvalidFile, load
from trainrun_operator.api.resources import TRAINRUN, Column, ObjectMeta, Resource
from trainrun_operator.api.run.status_parts import StatusPart

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.trainruns import TrainRuns


class ToySpec(Model):
    """What somebody wants to play with."""

    wheels: Annotated[int, Field(ge=1, le=8)] = 4
    """How many it has, 1 to 8. Default 4."""


class Toy(Model):
    """A thing to play with."""

    api_version: Literal["trainrun.dev/v1alpha1"] = API_VERSION
    kind: Literal["Toy"] = "Toy"
    metadata: ObjectMeta
    spec: ToySpec


@dataclass(frozen=True, kw_only=True)
class ToyStatus(StatusPart):
    """What became of it."""

    mood: str = ""
    """One word."""
    observed_generation: int = 0
    """Of the spec."""


TOY = Resource(
    kind="Toy",
    plural="toys",
    short_names=("ty",),
    model=Toy,
    status=ToyStatus,
    max_name=20,
    columns=(Column("Mood", "string", ".status.mood"),),
    verbs=("list", "watch"),
)

BROKEN = """
apiVersion: trainrun.dev/v1alpha1
kind: Toy
metadata: {name: car}
spec: {wheels: 9}
"""


def test_a_row_becomes_a_crd() -> None:
    made = crd(TOY)

    assert made["metadata"]["name"] == "toys.trainrun.dev"
    assert made["spec"]["names"] == {
        "kind": "Toy",
        "listKind": "ToyList",
        "plural": "toys",
        "singular": "toy",
        "shortNames": ["ty"],
        "categories": ["all"],
    }
    (version,) = made["spec"]["versions"]
    assert version["additionalPrinterColumns"] == [
        {"name": "Mood", "type": "string", "jsonPath": ".status.mood"}
    ]
    schema = version["schema"]["openAPIV3Schema"]
    assert schema["description"] == "A thing to play with."
    assert schema["properties"]["spec"]["properties"]["wheels"] == {
        "description": "How many it has, 1 to 8. Default 4.",
        "type": "integer",
        "format": "int32",
        "default": 4,
        "minimum": 1,
        "maximum": 8,
    }
    assert "at most 20 lower case letters" in str(schema["x-kubernetes-validations"])
    assert yaml.safe_load(crd_yaml(TOY)) == made


def test_a_row_tells_the_loader_what_is_wrong_in_a_file() -> None:
    with pytest.raises(InvalidFile) as caught:
        load(BROKEN, TOY, source="car.yaml")
    assert caught.value.problems == ("spec.wheels: 9 is greater than 8",)

    with pytest.raises(InvalidSpec, match=r'car\.yaml: kind is "Toy"; TrainRun is needed here'):
        load(BROKEN, TRAINRUN, source="car.yaml")
    with pytest.raises(InvalidSpec, match=r"car\.yaml: the file is empty; a Toy is needed"):
        load("", TOY, source="car.yaml")


def test_a_row_loads_a_file_as_its_model() -> None:
    toy = load(BROKEN.replace("9", "3"), TOY, source="car.yaml")

    assert (toy.metadata.name, toy.spec.wheels) == ("car", 3)


def test_a_row_says_what_the_operator_must_be_allowed() -> None:
    assert TOY.rights() == {
        ("toys.trainrun.dev", "list"),
        ("toys.trainrun.dev", "watch"),
        ("toys/status.trainrun.dev", "update"),
    }


def test_a_row_says_where_its_objects_are() -> None:
    assert TOY.path() == "/apis/trainrun.dev/v1alpha1/toys"
    assert TOY.path("team") == "/apis/trainrun.dev/v1alpha1/namespaces/team/toys"
    assert TOY.path("team", "car") == "/apis/trainrun.dev/v1alpha1/namespaces/team/toys/car"


def test_an_api_server_takes_the_crd_of_a_row(trainruns: TrainRuns, tmp_path: Path) -> None:
    (tmp_path / TOY.file_name).write_text(crd_yaml(TOY))
    trainruns.install(tmp_path / TOY.file_name, name=TOY.name)
    (tmp_path / "car.yaml").write_text(BROKEN)

    with pytest.raises(subprocess.CalledProcessError) as refused:
        trainruns.kubectl("create", "--filename", str(tmp_path / "car.yaml"))
    assert "spec.wheels in body should be less than or equal to 8" in refused.value.stderr
    (tmp_path / "car.yaml").write_text(BROKEN.replace("9", "3"))
    trainruns.kubectl("create", "--filename", str(tmp_path / "car.yaml"))
    assert "car" in trainruns.kubectl("get", "ty", "--output=wide")


def test_a_run_that_no_operator_has_looked_at_is_in_progress_for_gitops_tools(
    trainruns: TrainRuns,
) -> None:
    """`helm install --wait` of a run in a namespace that nobody watches ended at once, healthy."""
    trainruns.install()
    trainruns.create()
    assert kstatus(trainruns.get()) == ("InProgress", "generation is 1, observed is -1")


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_a_model_names_its_row(resource: Resource[Any]) -> None:
    fields = resource.model.model_fields

    assert {"apiVersion": fields["api_version"].default, "kind": fields["kind"].default} == (
        resource.head()
    )
