"""A command on a node that waits for a word: then it takes effect within milliseconds.

Reaching into a container takes up to a second on a busy machine, in which a gang restarts thrice.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testbed.kind_nodes import KindNode
    from testbed.nodes import Node

# Without a word it ends with its input, and does nothing.
_WAIT = 'echo waiting; read -r && exec "$@"'
_END_SECONDS = 60


@contextlib.contextmanager
def armed(node: Node | KindNode, *command: str) -> Iterator[Callable[[], None]]:
    """Yield a function that lets the command run, once, and returns at once.

    The block ends with the command. ClusterBroken when it could not be started, or has failed.
    """
    process = node.start_in_background("bash", "-c", _WAIT, "armed", *command)
    said, heard = process.stdin, process.stdout
    assert said is not None
    assert heard is not None
    if heard.readline() != "waiting\n":
        raise ClusterBroken(f"{command} cannot be run on {node.name}: {process.communicate()[1]}")
    told = False

    def run() -> None:
        nonlocal told
        told = True
        said.write("\n")
        said.flush()

    try:
        yield run
    finally:
        _, errors = process.communicate(timeout=_END_SECONDS)
    if told and process.returncode:
        raise ClusterBroken(f"{command} failed on {node.name}: {errors}")
