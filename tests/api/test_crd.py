"""The CRD is what the models say, in the form that an API server takes."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import cel
import pytest
import yaml
from pydantic import Field

from trainrun_operator.api import crd as crd_module
from trainrun_operator.api.base import Model
from trainrun_operator.api.crd import (
    NotStructural,
    crd,
    crd_yaml,
    main,
    structural,
)
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import TrainRunStatus

ROOT = Path(__file__).parents[2]
VERSION = crd(TRAINRUN)["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside `schema`, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


def test_the_file_in_crds_is_what_the_models_say() -> None:
    assert (ROOT / "crds" / TRAINRUN.file_name).read_text() == crd_yaml(TRAINRUN), "run `make crds`"


def test_the_program_writes_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "new"

    main(str(folder))

    assert yaml.safe_load((folder / TRAINRUN.file_name).read_text()) == crd(TRAINRUN)


def test_the_module_runs_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["crd", str(tmp_path)])

    runpy.run_path(str(crd_module.__file__), run_name="__main__")

    assert (tmp_path / TRAINRUN.file_name).read_text() == crd_yaml(TRAINRUN)


def test_client_side_apply_can_hold_it() -> None:
    # kubectl apply keeps the object in an annotation of at most 256 KiB; far below that, since
    # people read the file too.
    assert len(crd_yaml(TRAINRUN)) < 84_000


def test_the_schema_is_structural() -> None:
    for path, node in nodes(SCHEMA):
        any_type = path.endswith("[]") and not node
        assert any_type or "type" in node, path
        assert node.get("type") != "null", path
        for keyword in ("$ref", "anyOf", "oneOf", "const", "exclusiveMinimum", "title"):
            assert keyword not in node, (path, keyword)
        assert not ("properties" in node and "additionalProperties" in node), path
        assert node.get("default", 0) is not None, path


def test_every_field_of_the_spec_is_explained() -> None:
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        if not path.endswith("]"):
            assert node.get("description", "").strip().endswith("."), path


def test_every_default_is_named_in_its_description() -> None:
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        if "default" in node and not isinstance(node["default"], dict):
            value = node["default"]
            text = ", ".join(value) if isinstance(value, list) else str(value)
            shown = text.lower().removesuffix(".0")
            text = node["description"].lower()
            assert re.search(rf"default {re.escape(shown)}\b", text), path


def test_every_default_keeps_the_rules_of_its_own_schema() -> None:
    # The API server refuses a CRD otherwise, and looks at the default as it is written.
    checked = 0
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        if "default" in node:
            for rule in node.get("x-kubernetes-validations", []):
                assert cel.evaluate(rule["rule"], {"self": node["default"]}) is True, path
                checked += 1

    assert checked >= 6


def test_every_string_and_list_of_the_spec_is_bounded() -> None:
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        match node.get("type"):
            case "string":
                assert "maxLength" in node or "enum" in node, path
            case "array":
                assert "maxItems" in node, path
            case "integer" | "number":
                assert {"minimum", "maximum"} <= node.keys(), path
            case _:
                pass


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, node in nodes(SCHEMA) for rule in node.get("x-kubernetes-validations", [])]

    assert len(rules) >= 15
    assert all(rule["message"] for rule in rules)


def test_the_status_has_no_defaults() -> None:
    status = structural(TrainRunStatus, status=True)

    assert [path for path, node in nodes(status) if "default" in node] == []


def test_a_newer_operator_may_write_any_word_into_a_status() -> None:
    status = structural(TrainRunStatus, status=True)

    assert [path for path, node in nodes(status) if "enum" in node] == []


def test_every_integer_says_how_large_it_may_get() -> None:
    for path, node in nodes(SCHEMA):
        if node.get("type") == "integer":
            narrow = node.get("maximum", 2**63) < 2**31
            assert node["format"] == ("int32" if narrow else "int64"), path


def test_lists_that_several_managers_may_apply_are_merged_by_a_required_key() -> None:
    keyed = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in nodes(SCHEMA)
        if node.get("x-kubernetes-list-type") == "map"
    }

    template = ".spec.workers.template.spec"
    assert keyed == {
        f"{template}.containers": ["name"],
        f"{template}.containers[].env": ["name"],
        f"{template}.initContainers": ["name"],
        f"{template}.initContainers[].env": ["name"],
        ".status.conditions": ["type"],
    }
    for path, node in nodes(SCHEMA):
        if path in keyed:
            assert set(keyed[path]) <= set(node["items"]["required"]), path


def test_kubectl_get_all_shows_runs_and_tr_is_short_for_them() -> None:
    names = crd(TRAINRUN)["spec"]["names"]

    assert (names["categories"], names["shortNames"]) == (["all"], ["tr"])


def test_status_and_scale_are_subresources() -> None:
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.workers.replicas",
            "statusReplicasPath": ".status.workers.ready",
            "labelSelectorPath": ".status.workers.selector",
        },
    }


def test_the_columns_answer_what_an_operator_on_call_asks() -> None:
    columns = VERSION["additionalPrinterColumns"]

    assert [column["name"] for column in columns if "priority" not in column] == [
        "Phase",
        "Workers",
        "Step",
        "Posted",
        "Output",
        "Failures",
        "Restarts",
        "Checkpoint",
        "Saved",
        "Reason",
        "Age",
    ]
    assert [column["name"] for column in columns if column.get("priority") == 1] == [
        "Attempt",
        "Last cause",
        "Last node",
    ]


def test_every_column_shows_a_field_of_the_schema() -> None:
    known = {path for path, _ in nodes(SCHEMA)}

    for column in VERSION["additionalPrinterColumns"]:
        path = re.sub(r"\[.*?\]", "[]", column["jsonPath"])
        assert path in known | {".metadata.creationTimestamp"}, column["name"]


def test_one_possible_value_becomes_an_enum_since_const_is_ignored_by_the_server() -> None:
    class Kind(Model):
        kind: Literal["Only"] = "Only"

    assert structural(Kind)["properties"]["kind"]["enum"] == ["Only"]


def test_a_map_says_what_its_values_are() -> None:
    class Counts(Model):
        by_name: dict[str, int] = Field(default_factory=dict)

    inner = structural(Counts)["properties"]["byName"]

    assert inner == {
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int64"},
    }


def test_a_field_of_two_types_is_refused_with_its_place() -> None:
    class Inner(Model):
        either: int | str = 0

    class Outer(Model):
        inner: Inner = Inner()

    with pytest.raises(NotStructural, match=r"inner\.either: more than one type"):
        structural(Outer)


def test_a_keyword_that_the_server_would_ignore_is_refused() -> None:
    class Strange(Model):
        even: int = Field(default=0, multiple_of=2)

    with pytest.raises(NotStructural, match="even: the API server does not know"):
        structural(Strange)
