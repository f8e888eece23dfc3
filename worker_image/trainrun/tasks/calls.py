"""One call of a task, as the driver knows it.

Layer: tasks, pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainrun.tasks.options import TaskOptions
from trainrun.tasks.refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`f.remote(...)`: made by the function, given to the driver."""

    key: str
    function: str
    """`module:qualname`, as a worker finds it; `__main__` for the program's own module."""
    arguments: bytes = field(repr=False)
    """A pickle of `(args, kwargs)`."""
    inputs: tuple[ObjectRef, ...] = ()
    """Every reference in the arguments, however deep."""
    options: TaskOptions = field(default_factory=TaskOptions)
    shown: str = ""
    """The call in short, for people: `tokenize('s3://a/0001')`; secrets are hidden."""
    code: str = ""
    """Digest of the module's file."""

    @property
    def parents(self) -> tuple[str, ...]:
        """Keys of its inputs, each once, in their order."""
        return tuple(dict.fromkeys(ref.key for ref in self.inputs))
