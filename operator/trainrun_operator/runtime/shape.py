"""The shape of a message from an agent: nothing that ours send comes near these bounds.

Layer: runtime; pure. An agent that has shown who it is may still be anybody's program: what it says
must not cost a pass over its run more than that of any other.
"""

from __future__ import annotations

from trainrun.contract.wire import MalformedMessage

DEEPEST = 8
"""Objects and lists in one another."""
MOST_ITEMS = 1024
"""Of one list: a worker has at most as many ranks and steps in the making."""
MOST_FIELDS = 1024
"""Of one object: metrics of a report."""


def check_shape(message: object, *, path: str = "", depth: int = 0) -> None:
    """Raises MalformedMessage naming the field that is too deep or too long."""
    if not isinstance(message, dict | list):
        return
    if depth >= DEEPEST:
        raise MalformedMessage(f"{path:.80}: more than {DEEPEST} levels")
    if isinstance(message, list):
        if len(message) > MOST_ITEMS:
            raise MalformedMessage(f"{path:.80}: {len(message)} items, at most {MOST_ITEMS} fit")
        for number, item in enumerate(message):
            check_shape(item, path=f"{path}[{number}]", depth=depth + 1)
        return
    if len(message) > MOST_FIELDS:
        raise MalformedMessage(f"{path:.80}: {len(message)} fields, at most {MOST_FIELDS} fit")
    for name, item in message.items():
        check_shape(item, path=f"{path}.{name}" if path else name, depth=depth + 1)
