"""How bad the network between agents and operators, and the way to the API server, is.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is."""

    loss: float = 0.0
    """Probability that a message is lost."""
    duplicate: float = 0.0
    """Probability that a message comes twice."""
    delay: float = 0.05
    """Longest ordinary delay of a message in seconds; messages overtake each other."""
    api_delay: float = 0.02
    """Longest time in seconds that a request, or its answer, takes to or from the API server."""
