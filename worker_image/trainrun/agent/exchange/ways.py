"""Which way to the leader is tried next: the Service, or the address of one of the operators.

Layer: agent, pure. The way through the Service is made by the node's kube-proxy, which may not know
of a new leader. Every operator says where all of them are, with each response. Invariants: the
Service comes first, and for a moment alone; a way that leads to the leader is kept; all are tried
before there is a pause.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SERVICE = ""
"""The way by the address that the configuration names."""
SERVICE_SECONDS = 2.0
"""So long the Service alone is tried: most hand-overs take no longer, and a fleet that knocks at
the next leader's door before it leads would only hold it up."""
MOST = 8
"""Addresses that are kept."""


@dataclass(slots=True)
class Ways:
    """The ways of one agent."""

    operators: tuple[str, ...] = ()
    """`address:port` of each, the leader first, as far as it is known."""
    way: str = SERVICE
    """The one to use now."""
    _tried: set[str] = field(default_factory=set)
    """Those that have led nowhere since the last answer, or the last pause."""
    _lost_since: float | None = None
    """Since when no leader is found."""

    def learn(self, operators: tuple[str, ...]) -> None:
        """An operator has said where all of them are; those that say nothing change nothing."""
        if operators:
            self.operators = operators[:MOST]

    def found(self) -> None:
        """The leader answers on this way."""
        self._tried.clear()
        self._lost_since = None

    def lost(self, since: float, now: float) -> bool:
        """This way has led to no leader since then, in monotonic seconds.

        True: there is another one, to be tried at once; False: after a pause, from the first on.
        """
        if self._lost_since is None:
            self._lost_since = since
        self._tried.add(self.way)
        beside = self.operators if now - self._lost_since >= SERVICE_SECONDS else ()
        untried = [way for way in (SERVICE, *beside) if way not in self._tried]
        if not untried:
            self._tried.clear()
        self.way = untried[0] if untried else SERVICE
        return bool(untried)
