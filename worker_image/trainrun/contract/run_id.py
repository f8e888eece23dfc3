"""The id of a run: the same in every start of it, for trackers and folders of other programs.

Layer: contract, pure. Derived from what `run.json` says of who used the run's folder first. That
is written once, so the id outlives restarts, operators, clusters, and the TrainRun itself.
"""

from __future__ import annotations

import base64
import hashlib
import re

LENGTH = 16
"""Characters: 80 bits. W&B takes up to 64."""
LONGEST = 32
"""Characters of an id of another version."""

_VALID = re.compile(rf"[a-z0-9]{{1,{LONGEST}}}")


def derived(created_by: str, folder: str) -> str:
    """The id of the run in this folder, named below its storage, that `created_by` used first.

    The name counts, so that a copy of the folder under another name is another run, and so is a
    later generation; where the folder lies does not, so that a run that was moved to another bucket
    stays the same one.
    """
    digest = hashlib.sha256(f"{created_by}\n{folder}".encode()).digest()
    return base64.b32encode(digest).decode()[:LENGTH].lower()


def valid(text: str) -> str:
    """The id that somebody sent; empty where it is none."""
    return text if _VALID.fullmatch(text) else ""
