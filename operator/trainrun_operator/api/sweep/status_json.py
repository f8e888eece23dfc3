"""The status of a TrainSweep as the JSON of the custom resource.

Layer: api. Absent instead of null, camelCase; names of parameters stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from trainrun_operator.api.sweep.status import TrainSweepStatus

_STATUS = TypeAdapter(TrainSweepStatus)


def status_from(json_object: Mapping[str, Any]) -> TrainSweepStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    return _STATUS.validate_python(json_object)


def json_object(status: TrainSweepStatus) -> dict[str, Any]:
    """What stands in the custom resource."""
    written: dict[str, Any] = _STATUS.dump_python(
        status, mode="json", by_alias=True, exclude_none=True
    )
    return written
