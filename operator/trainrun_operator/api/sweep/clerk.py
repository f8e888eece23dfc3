"""What a sweep's user says of its clerk, the pod that keeps the log in a cluster.

Layer: api.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from trainrun_operator.api.base import INT_OR_STRING, Hint, Model
from trainrun_operator.api.sweep.values import refuse


def _quantity(value: object) -> object:
    """The API server knows best what a quantity is, and says so where it refuses the pod."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 32:
        refuse([((), 'must be a quantity, as "500m" or "1Gi"')])
    return value


Quantity = Annotated[Any, AfterValidator(_quantity), WithJsonSchema({INT_OR_STRING: True})]
"""As Kubernetes writes it: 1, "500m", "1Gi"."""
Quantities = Annotated[dict[Annotated[str, Field(max_length=253)], Quantity], Field(max_length=16)]


class ClerkResources(Model):
    """Of the clerk's one container. What is named here takes the place of its default, in both."""

    requests: Quantities = Field(default_factory=dict)
    """What its node must have free. Default cpu 50m, memory 128Mi."""
    limits: Quantities = Field(default_factory=dict)
    """What it may use. Default memory 1Gi."""


class ClerkSpec(Model):
    """The pod that keeps the log of a sweep in a cluster; `trainrun run` needs none."""

    replicas: Annotated[int, Field(ge=1, le=1)] = 1
    """Always 1: how many clerks a PodDisruptionBudget expects. Default 1."""
    resources: Annotated[ClerkResources, Hint("write resources: {limits: {cpu: 500m}}")] = (
        ClerkResources()
    )
    """Its requests and limits, for namespaces whose quota or LimitRange asks for other ones than
    the default. A change makes a new clerk."""
