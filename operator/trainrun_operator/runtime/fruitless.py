"""Connections that ended before anybody had shown on them who he is, by the address they came from.

Layer: runtime, pure. Each costs a handshake, a millisecond or two of the only processor that serves
all agents: an address that makes them for the sake of it is turned away without one. Agents that
are told to ask elsewhere make them, too, for some seconds after a change of the leader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AT_ONCE = 256.0
"""Of one address. Workers behind one address may all ask an operator that does not lead."""
PER_SECOND = 50.0
"""So many are forgotten in a second, and so many are borne for ever: a tenth of a processor."""
ADDRESSES = 4096
"""Addresses that are remembered at most: of more than that the one longest known is forgotten."""


@dataclass(slots=True)
class Fruitless:
    """How many there were lately."""

    _lately: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By address: how many, and when that was."""

    def count(self, address: str, now: float) -> None:
        """There was one more."""
        if address not in self._lately and len(self._lately) >= ADDRESSES:
            del self._lately[next(iter(self._lately))]
        self._lately[address] = (self._of(address, now) + 1.0, now)

    def had_its_share(self, address: str, now: float) -> bool:
        """No other connection of this address is to be let in now."""
        number = self._of(address, now)
        if not number:
            self._lately.pop(address, None)
        return number >= AT_ONCE

    def _of(self, address: str, now: float) -> float:
        number, time = self._lately.get(address, (0.0, now))
        return max(number - PER_SECOND * (now - time), 0.0)
