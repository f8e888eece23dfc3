"""What the operator reads of a pod template besides the models, and what it may not be.

Layer: api. The CRD leaves a template open, so the API server takes `labels: [a]`, and only refuses
the pod that it would check. No pod can be made from such a template: its user is told of the field.
"""

from __future__ import annotations

import itertools
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from trainrun_operator.api.pod_template import WORKER_CONTAINER, PodTemplate
from trainrun_operator.api.problems import sentences

MOST_TOLD = 3
"""Problems of a template that are told at once."""

_EMPTY = BeforeValidator(lambda value: value or None)
"""What is empty is read as absent."""

_Mapping = Annotated[dict[str, Any] | None, _EMPTY]
_List = Annotated[list[Any] | None, _EMPTY]
_Objects = Annotated[list[dict[str, Any]] | None, _EMPTY]


class _Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _Metadata(_Shape):
    labels: _Mapping = None
    annotations: _Mapping = None


class _Term(_Shape):
    match_fields: _List = None


class _Required(_Shape):
    node_selector_terms: Annotated[list[_Term] | None, _EMPTY] = None


class _NodeAffinity(_Shape):
    required_during_scheduling_ignored_during_execution: Annotated[_Required | None, _EMPTY] = None
    preferred_during_scheduling_ignored_during_execution: _List = None


class _Affinity(_Shape):
    node_affinity: Annotated[_NodeAffinity | None, _EMPTY] = None


class _Container(_Shape):
    volume_mounts: _Objects = None


class _Spec(_Shape):
    containers: list[_Container]
    volumes: _Objects = None
    tolerations: _List = None
    affinity: Annotated[_Affinity | None, _EMPTY] = None
    security_context: _Mapping = None


class _Template(_Shape):
    metadata: Annotated[_Metadata | None, _EMPTY] = None
    spec: _Spec


def shape_problem(template: PodTemplate) -> str:
    """Why no pod can be made from this template, with the fields below it; "" where one can."""
    if names := template.spec.candidates:
        return (
            f"spec.containers: {', '.join(names)}: none of these is called "
            f'"{WORKER_CONTAINER}"; rename the one that trains to {WORKER_CONTAINER}'
        )
    try:
        _Template.model_validate(template.as_dict())
    except ValidationError as error:
        found = (it for detail in error.errors() for it in sentences(detail, _Template))
        return "; ".join(itertools.islice(found, MOST_TOLD))
    return ""
