"""What is said of a storage that refuses: once for as long as it does.

Layer: cli; pure.
"""

from __future__ import annotations


class StorageTrouble:
    """Between two words of the same trouble lies a time in which the log was brought up to date.

    A full disk can be read: a log that was read and not written yet is no sign that all is well.
    """

    def __init__(self) -> None:
        self._said = ""

    def news(self, trouble: str, *, settled: bool) -> str:
        """What to say now, or nothing; `trouble` is empty where nothing stands in the way, and
        `settled` tells that the log was brought to what is wanted."""
        if not trouble:
            if settled:
                self._said = ""
            return ""
        if trouble == self._said:
            return ""
        self._said = trouble
        return f"the sweep waits for its storage, trials go on: {trouble}"
