"""Makes a rank look for rank 0's port again and again before torch does.

Layer: agent, leaf; none of our modules imports it. torch's client waits half a second after the
first refused connection, and longer after each further one. Warm ranks come to the rendezvous
within milliseconds of each other, so this wait was most of their restart.
The agent writes this file, with an entry point of the group `torch.backends`, into a folder on
PYTHONPATH. torch 2.5 or later calls `install` at the end of `import torch`; an older one waits as
before. Any failure here leaves everything to torch. Runs in the user's interpreter: standard
library only.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from urllib.parse import parse_qs, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

LONGEST = 20.0
"""Seconds that a rank looks for the port here, and at most this part of torch's own timeout:"""
PART = 0.1
SHORTEST, PER_RANK, GROWTH, PAUSE = 0.005, 0.0001, 0.1, 1.0
"""A pause lasts SHORTEST seconds, but PER_RANK for each rank of the run, so that a large gang makes
no flood, and a tenth of the wait so far, but never more than PAUSE."""


def install() -> None:
    """Put the wait in front of torch's `env://` rendezvous."""
    module = sys.modules.get("torch.distributed.rendezvous")
    handlers = getattr(module, "_rendezvous_handlers", {})
    torchs = handlers.get("env")
    if torchs is None:  # built without torch.distributed
        return

    def env(url: str, **options: Any) -> Any:
        try:
            wait(url, options.get("timeout"))
        except (AttributeError, KeyError, TypeError, ValueError, OSError):
            pass  # torch says what is wrong
        return torchs(url, **options)

    handlers["env"] = env


def wait(url: str, timeout: timedelta | None) -> None:
    """Return once somebody listens at the master port, or after a while. Rank 0 never waits.

    Raises OSError for any other failure than a refused connection.
    """
    [rank] = parse_qs(urlsplit(url).query).get("rank", [os.environ["RANK"]])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    shortest = max(SHORTEST, PER_RANK * int(os.environ["WORLD_SIZE"]))
    longest = LONGEST if timeout is None else min(LONGEST, PART * timeout.total_seconds())
    began = time.monotonic()
    while int(rank) != 0 and (waited := time.monotonic() - began) < longest:
        try:
            socket.create_connection(address, timeout=PAUSE).close()
            return
        except ConnectionError:
            time.sleep(min(PAUSE, max(shortest, GROWTH * waited)))
