"""Which exception the output of a process tells of, read line by line.

Layer: agent, pure. Printers differ: PyTorch puts its rank before each line, a logger the time, rich
draws a box, a progress bar leaves the first line at the end of its own. The last traceback explains
the end of a process, unless it is of a thread, a destructor or a launcher and another came before.
"""

from __future__ import annotations

import re
from typing import Final

from trainrun._common.text import without_escapes

FORGOTTEN = 500
"""Lines after an exception behind which it does not explain the end of the process."""
STRAYS = 20
"""Lines of others between those of one traceback, at most."""
LONGEST_FRAME = 4096
"""Characters of a line that names a file, at most."""

_HEADER = re.compile(
    r"(?P<prefix>.*?)(?P<group>\+ Exception Group )?(?:╭─+ )?(?:Original )?"
    r"Traceback \(most recent call last\)(?::| ?─*╮)\s*$"
)
_FRAME = re.compile(r"(?P<prefix>.*?)  File \".+\", line \d+(?P<place>, in .+)?$")
_RANK = re.compile(r"\[rank\d+\]: ?")
_BAR = re.compile(r"[^|]*\d%\|[^|]*\| ?\S+ \[[^\]]*\]")
"""One state of a progress bar of tqdm."""
_EXCEPTION = re.compile(r"(?:[A-Za-z_<][\w<>]*\.)*(?:_*[A-Z]\w*|\w*error|timeout)(?::|$)")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
"""Of the script itself: Python prints these without a first line."""
_SURVIVED = re.compile(r"Exception ignored |--- Logging error|Task exception was never retrieved")
"""Before the traceback of an exception that ended nothing."""
_ASIDE = re.compile(r"Exception in thread |Process \S+:$|Error in (?:atexit|sys\.excepthook)")
_REPORTER = re.compile(r"[\w.]*(?:ChildFailedError|CalledProcessError|ProcessExitedException)\b")
"""A launcher's exception, which says only that the process it started has failed."""


class Tracebacks:
    """Takes the lines of one process; knows the exception that explains its end best."""

    def __init__(self) -> None:
        self._found = ""
        self._found_at = 0
        self._aside = False
        """What was found need not be why the process ended: the next one may be."""
        self._count = 0
        self._before: Final = ["", ""]
        """The last two lines."""
        self._inside = False
        self._goes_on = False
        """The text of what was found may have further lines: PyTorch marks them."""
        self._strays = 0
        self._prefix: re.Pattern[str] | None = None
        """What the printer of this traceback puts before each of its lines."""
        self._end = _EXCEPTION
        """How the last line of this traceback begins."""
        self._weak = self._ignored = self._group = False
        """This traceback is of a thread or the like, of a survived exception, of a group."""

    @property
    def exception(self) -> str:
        """`ValueError: text`; empty where nothing was found, or too long ago."""
        return self._found if self._count - self._found_at <= FORGOTTEN else ""

    def add(self, line: str) -> None:
        """Take the next line, or the next state of a line that is redrawn."""
        self._count += 1
        if self._inside or self._goes_on or "Traceback" in line or "  File " in line:
            self._read(without_escapes(line).rstrip())
        self._before[0], self._before[1] = self._before[1], line

    def _read(self, line: str) -> None:
        goes_on, self._goes_on = self._goes_on, False
        header = _HEADER.fullmatch(line) if "Traceback" in line else None
        if header is not None and not (self._group and header["prefix"].endswith("| ")):
            self._begin(header)
        elif len(line) <= LONGEST_FRAME and (frame := _FRAME.match(line)) is not None:
            self._frame(frame)
        elif self._inside and header is None:
            self._next(line)
        elif goes_on and (rank := _RANK.match(line)) is not None and not line.endswith(rank[0]):
            self._found, self._goes_on = f"{self._found}\n{line[rank.end() :]}", True

    def _begin(self, header: re.Match[str]) -> None:
        self._inside, self._strays, self._end = True, 0, _EXCEPTION
        self._prefix = _shape(header["prefix"])
        self._group = header["group"] is not None
        self._ignored = any(map(_SURVIVED.search, self._before))
        self._weak = any(map(_ASIDE.search, self._before))

    def _frame(self, frame: re.Match[str]) -> None:
        if not self._inside:
            if self._found_at and self._count - self._found_at <= len(self._before):
                self._inside = True  # what seemed to be its last line was somebody else's
            elif frame["place"] is None:
                self._inside, self._end = True, _SYNTAX
                self._weak = self._ignored = self._group = False
        self._strays = 0
        self._prefix = _shape(frame["prefix"])

    def _next(self, printed: str) -> None:
        line = self._bare(printed)
        if not line or line[0] in " \t│╭╰":
            return
        if self._end.match(line) is None:
            self._strays += 1
            self._inside = self._strays <= STRAYS
            return
        self._inside = False
        weak = self._weak or _REPORTER.match(line) is not None
        if not self._ignored and (not weak or self._aside or not self.exception):
            self._found, self._found_at, self._aside = line, self._count, weak
            self._goes_on = _RANK.match(printed) is not None and not self._group

    def _bare(self, line: str) -> str:
        """Without what the printer of the traceback, or a progress bar, has put before it."""
        for before in (self._prefix, _RANK, _BAR):
            if before is not None and (found := before.match(line)) is not None:
                line = line[found.end() :]
        return line


def _shape(prefix: str) -> re.Pattern[str] | None:
    """Matches prefixes that differ from this one only in their numbers, as times do."""
    if not prefix:
        return None
    return re.compile(r"\d+".join(map(re.escape, re.split(r"\d+", prefix))))
