"""References to results that may not be there yet.

Layer: tasks, pure. Inside arguments a reference stands for the result itself: a task gets values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """One result of a call, or a value of `put`."""

    key: str
    index: int = 0

    def __reduce__(self) -> tuple[type[ObjectRef], tuple[str, int]]:
        """Made by a call, which a task's process replaces by the value."""
        return ObjectRef, (self.key, self.index)

    def __repr__(self) -> str:
        """As messages name it."""
        return f"ObjectRef({self.key[:12]}{f'.{self.index}' if self.index else ''})"


def object_name(key: str, number: int, index: int) -> str:
    """Its name in the keep; `number`: of the try that made it, since a worker that is cut off may
    still store what another try has committed meanwhile. A value of `put` has 0."""
    return f"{key}-{number}/{index}"
