"""An installation of the operator, and the name of it by which a status says who leads a run.

Layer: core, leaf.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An operator with all its replicas; nameless where there can be only one."""

    name: str = ""
    """The namespace that it lives in: there is room for one in each."""
    key: str = ""
    """Tells the key by which it knows its own workers from others: one that has lost its key knows
    none of them, nor do they know it."""
    adopts: frozenset[str] = frozenset()
    """Names of installations that are gone, whose runs it takes over."""

    @property
    def holder(self) -> str:
        """As a status names it; empty: nameless."""
        return f"{self.name}/{self.key}" if self.name else ""

    def may_lead(self, holder: str) -> bool:
        """Whether a run with this holder is its own, or becomes it."""
        return not holder or name_of(holder) in {self.name, *self.adopts}


NAMELESS = Installation()
"""Where nobody else can be: on one machine."""


def name_of(holder: str) -> str:
    """The namespace of the holder's installation."""
    return holder.partition("/")[0]
