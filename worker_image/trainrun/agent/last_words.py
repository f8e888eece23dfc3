"""What `kubectl describe pod` shows of an ended worker: the container's termination message.

Layer: agent, leaf. Best effort: the kubelet puts an empty file into each container and reads what
stands there when the container has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from trainrun.agent.processes.group import describe
from trainrun.contract.agent_state import ProcessExit

FILE = Path("/dev/termination-log")
"""Where Kubernetes puts it by default; absent elsewhere, and never made by us."""
LONGEST = 4096
"""Bytes that the kubelet reads."""


def compose(reason: str, exits: Iterable[ProcessExit]) -> str:
    """Say why the agent left and what its first process to fail said last."""
    failed = [end for end in exits if end.failed]
    if not failed:
        return reason
    culprit = max(failed, key=lambda end: end.age)
    head = f"rank {culprit.rank} {describe(culprit)}"
    return "\n".join([f"{head} ({reason})" if reason else head, *culprit.last_lines])


def write(text: str, file: Path = FILE) -> None:
    """Leave `text`; where it is too long its end goes on, since errors stand there."""
    data = text.encode(errors="replace")
    if len(data) > LONGEST:
        head, _, rest = data.partition(b"\n")
        head = head[: LONGEST // 2]
        data = head + b"\n...\n" + rest[-(LONGEST - len(head) - 5) :]
    try:
        target = os.open(file, os.O_WRONLY | os.O_TRUNC)
    except OSError:
        return  # no container, or another place for it
    try:
        os.write(target, data)
    except OSError:
        pass  # a full disk: the log has the same lines
    finally:
        os.close(target)
