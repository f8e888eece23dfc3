"""Whether one list of the API server can be read, for those who wait for it and those who ask.

Layer: kube, leaf. A list that is refused (a namespace that is gone, a right or a kind that is
missing) holds up only what depends on it. What is not listed is unknown: it is never taken for
empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

EVERYWHERE = ""
"""The namespace that stands for all."""
PATIENCE = 3
"""Failures in a row until a list counts as one that cannot be read: single ones pass by."""
LOOK_EVERY = 0.05
"""Seconds between two looks, while nothing at all can be read."""

_log = logging.getLogger(__name__)


class ListState:
    """Of what lies under one path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        """Why it cannot be read, in the API server's words; empty: it can."""
        self.failures = 0
        """In a row."""
        self.synced = asyncio.Event()
        """It has been read."""
        self.settled = asyncio.Event()
        """It has been read, or is known to be in trouble."""

    def start_over(self) -> None:
        """It has to be read anew."""
        self.synced.clear()
        self.settled.clear()

    def read(self) -> None:
        """It has been read as a whole."""
        self.heard()
        self.synced.set()
        self.settled.set()

    def heard(self) -> None:
        """There is news of what it shows."""
        if self.trouble:
            _log.info("%s can be read again", self.path)
        self.trouble, self.failures = "", 0

    def failed(self, error: Exception) -> None:
        """It was tried in vain."""
        self.failures += 1
        text = str(error) or type(error).__name__
        if self.failures < PATIENCE:
            _log.info("%s: %s", self.path, text)
            return
        if text != self.trouble:
            _log.warning("%s cannot be read, and is tried again and again: %s", self.path, text)
        self.trouble = text
        self.settled.set()


async def settled(listings: Collection[ListState]) -> None:
    """Wait until each was read or is in trouble, and one at least was read: an API server that is
    away is waited for."""
    for listing in listings:
        await listing.settled.wait()
    while not any(listing.synced.is_set() for listing in listings):
        await asyncio.sleep(LOOK_EVERY)
