"""Which names the files of a checkpoint may have: what every store can hold.

Layer: contract, pure, leaf. The library refuses the others where the script can still be told; the
agent does again.
"""

from __future__ import annotations

import unicodedata

TEMPORARY = ".trainrun-tmp-"
"""Prefix of unfinished files in a store on a file system."""


def unstorable(name: str) -> str:
    """Why a file of this relative path cannot be stored, and what to do; empty: it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8, which object storage requires; rename it"
    if any(unicodedata.category(char) == "Cc" for char in name):
        return "its name has a control character, which object storage cannot list; rename it"
    if any(part.startswith(TEMPORARY) for part in name.split("/")):
        return f"names that start with {TEMPORARY} are reserved; rename it"
    return ""
