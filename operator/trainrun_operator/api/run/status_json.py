"""The status as the JSON of the custom resource: read, written, measured.

Layer: api; the one place where a status is validated. Absent instead of null, camelCase. What only
the operator reads (`Internal`) stands in one object of its own; inside it is a part of the status
like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter
from pydantic.alias_generators import to_camel

from trainrun_operator.api.run.incident import Incident
from trainrun_operator.api.run.status import INTERNAL, Internal, TrainRunStatus

_STATUS = TypeAdapter(TrainRunStatus)
_INCIDENT = TypeAdapter(Incident)
_INTERNAL_NAMES = frozenset(to_camel(field.name) for field in fields(Internal))


def status_from(json_object: Mapping[str, Any]) -> TrainRunStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    shown = {name: value for name, value in json_object.items() if name not in _INTERNAL_NAMES}
    return _STATUS.validate_python({**shown, **json_object.get(INTERNAL, {})})


def json_object(status: TrainRunStatus) -> dict[str, Any]:
    """What stands in the custom resource."""
    written: dict[str, Any] = _STATUS.dump_python(
        status, mode="json", by_alias=True, exclude_none=True
    )
    internal = {name: written.pop(name) for name in _INTERNAL_NAMES & written.keys()}
    return {**written, INTERNAL: internal}


def json_size(status: TrainRunStatus) -> int:
    """Bytes of it as compact JSON in UTF-8, which is how the API server keeps it."""
    flat = len(_STATUS.dump_json(status, by_alias=True, exclude_none=True))
    return flat + len(f'"{INTERNAL}":{{}}')


def incident_object(incident: Incident) -> dict[str, Any]:
    """An incident as it stands in the status."""
    written: dict[str, Any] = _INCIDENT.dump_python(
        incident, mode="json", by_alias=True, exclude_none=True
    )
    return written
