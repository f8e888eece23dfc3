"""The table of custom resources.

Layer: api.
"""

from __future__ import annotations

from typing import Any

from trainrun_operator.api.resources import TRAINRUN, Resource
from trainrun_operator.api.sweep.resource import TRAINSWEEP

RESOURCES: tuple[Resource[Any], ...] = (TRAINRUN, TRAINSWEEP)
"""All of them."""
