"""What a look at a script's folder shows: its saves, which is the newest, which of them are quiet.

Layer: agent, pure. Words: an *entry* is one save of the script: all files and folders that match
`newest` and have the same number in their name. Without `newest` the folder is one entry, without a
number. *Loose* is what belongs to no entry.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from trainrun._common.writer_processes import is_temporary
from trainrun.contract.layout import unstorable

LOGS = re.compile(
    r"(^|/)(wandb|tensorboard|lightning_logs|mlruns)/|(^|/)events\.out\.tfevents[^/]*$"
    r"|\.(log|out|err|txt|csv|tsv|jsonl)$"
)
"""Names that grow while a script trains: they are stored as they are, and decide nothing."""
NUMBER = re.compile(r"(?<!\d\.)(?<!\d)(?<!-v)\d+(?!\d)(?!\.\d)")
"""A whole number; 0.99 has none, nor has the -v1 that Lightning appends."""
LONGEST = 12
"""Digits of a number; longer ones are dates and hashes."""
WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file or a link, as far as a look shows whether it has changed."""

    inode: int
    size: int
    modified: int
    """Nanoseconds since the epoch."""
    target: str = ""
    """Where a link leads to; empty: a file."""


Look = Mapping[str, FileFacts]
"""Files and links by their names within the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """One save."""

    number: int | None
    """Of its name; None: it is overwritten in place."""
    names: tuple[str, ...]
    """What matches `newest`, in order; empty: the whole folder."""
    files: Look

    @property
    def modified(self) -> int:
        """When a file of it changed last."""
        return max((facts.modified for facts in self.files.values()), default=0)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(facts.size for facts in self.files.values())

    @property
    def final(self) -> bool:
        """Whether its name says that it is written once; exp2/last.pt is overwritten in place."""
        own = (NUMBER.findall(name.rpartition("/")[2]) for name in self.names)
        return self.number is not None and all(self.number in map(int, found) for found in own)

    def same(self, other: Look) -> bool:
        """Whether another look shows all its files unchanged."""
        return all(other.get(name) == facts for name, facts in self.files.items())

    def is_over(self, taken: FolderEntry | None) -> bool:
        """Whether it is the entry that was taken last, or has a number and is nothing new then."""
        if taken is None or taken.number is None or self.number is None:
            return self == taken
        if self.number > taken.number:
            return False
        new = any(taken.files.get(name, facts) != facts for name, facts in self.files.items())
        return not new or self.number < taken.number


@lru_cache(maxsize=64)
def expression(pattern: str) -> re.Pattern[str]:
    """A pattern for names; `*` and `?` do not match a slash, `**` does."""
    parts = re.split(r"(\*\*|\*|\?|\[[^\]/]+\])", pattern)
    meanings = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    text = "".join(
        meanings.get(part, part.replace("[!", "[^", 1) if part[:1] == "[" else re.escape(part))
        for part in parts
    )
    return re.compile(text, re.DOTALL)


def leads_to(folder: str, newest: str) -> bool:
    """Whether a folder is, or may have in it, what matches the pattern."""
    own, parts = folder.split("/"), newest.split("/")
    both = min(len(own), len(parts))
    found = expression("/".join(parts[:both])).fullmatch("/".join(own[:both]))
    return found is not None or "**" in newest


def number_of(name: str, newest: str) -> int | None:
    """The number in a name that matches `newest`: the last whole one in what stands for the
    wildcards of the last part that has any."""
    for text, pattern in zip(reversed(name.split("/")), reversed(newest.split("/")), strict=False):
        if WILDCARD.search(pattern):
            before = WILDCARD.split(pattern)[0]
            after = re.split(r"[*?\]]", pattern)[-1]
            found = NUMBER.findall(text[len(before) : len(text) - len(after)])
            return int(found[-1]) if found and len(found[-1]) <= LONGEST else None
    return None


def entries_of(look: Look, newest: str) -> list[FolderEntry]:
    """The entries of a folder, the newest last: by number, else by time of change."""
    if not newest:
        files = {name: facts for name, facts in look.items() if not is_log(name)}
        return [FolderEntry(number=None, names=(), files=files)] if files else []
    pattern, depth = expression(newest), newest.count("/") + 1
    alone = WILDCARD.search(newest.rpartition("/")[2]) is None  # */last.pt: each folder is a save
    found: dict[int | str, dict[str, FileFacts]] = {}
    names: dict[int | str, dict[str, None]] = {}
    keys: dict[str, int | str | None] = {}
    for name, facts in sorted(look.items()):
        top = "/".join(name.split("/")[:depth])
        if top not in keys:  # an entry may have thousands of files
            number = None if alone else number_of(top, newest)
            belongs = pattern.fullmatch(top) is not None
            keys[top] = None if not belongs else top if number is None else number
        key = keys[top]
        if key is None or (top == name and facts.target):
            continue  # a link to an entry is loose
        found.setdefault(key, {})[name] = facts
        names.setdefault(key, {})[top] = None
    made = [
        FolderEntry(number=number_of(min(names[key]), newest), names=tuple(names[key]), files=files)
        for key, files in found.items()
    ]
    return sorted(made, key=lambda e: (-1 if e.number is None else e.number, e.modified))


def is_log(name: str) -> bool:
    """Whether such a file grows while the script trains."""
    return LOGS.search(name) is not None


def loose(look: Look, newest: str, *, models: bool) -> Look:
    """What is stored beside an entry: logs, settings and links; with `models` all that belongs to
    no entry."""
    taken = {name for entry in entries_of(look, newest) for name in entry.files}
    return {
        name: facts
        for name, facts in look.items()
        if name not in taken
        and not unstorable(name)
        and not is_temporary(name)
        and (models or facts.target or is_log(name) or name.endswith((".json", ".yaml", ".yml")))
    }


def hard_links(files: Look) -> dict[str, str]:
    """Names of files that are there under another name, too: each with the first one, in the order
    of the look. None where there are symbolic links, which may lead to any of them."""
    first: dict[FileFacts, str] = {}
    if any(facts.target for facts in files.values()):
        return {}
    return {
        name: f for name, facts in files.items() if (f := first.setdefault(facts, name)) != name
    }


def changed(files: Look, before: Look | None) -> Look:
    """Those that a look before did not show, or not so."""
    return {name: facts for name, facts in files.items() if (before or {}).get(name) != facts}


def unfit(entry: FolderEntry, complete: Iterable[str]) -> str:
    """Why an entry is not a whole save, by its names and sizes; empty: it may be one."""
    for pattern in complete:
        wanted = expression(pattern)
        if not any(wanted.fullmatch(name) for name in entry.files):
            return f"no file matches complete: {pattern}"
    for name, facts in entry.files.items():
        if reason := unstorable(name):
            return f"{name!r}: {reason}"
        if is_temporary(name):
            return f"{name} has a temporary name"
        if not facts.size and not facts.target:
            return f"{name} is empty"
    return ""


@dataclass(slots=True, kw_only=True)
class Quiet:
    """For how long the entries have not changed, by the caller's clock."""

    settle: float
    """Seconds without a change after which an entry is quiet."""
    restless: int = 0
    """Looks in a row that showed entries, none of them quiet."""
    _since: dict[tuple[str, ...], tuple[FolderEntry, float]] = field(default_factory=dict)

    def look(self, entries: Iterable[FolderEntry], now: float) -> list[FolderEntry]:
        """Note a look at the folder; return the entries that are quiet, the newest last."""
        since, quiet = {}, []
        for entry in entries:
            before = self._since.get(entry.names)
            same = before is not None and before[0] == entry
            since[entry.names] = before if before is not None and same else (entry, now)
            if same and now - since[entry.names][1] >= self.settle:
                quiet.append(entry)
        self._since = since
        self.restless = self.restless + 1 if since and not quiet else 0
        return self.newest_last(quiet)

    def newest_last(self, entries: Iterable[FolderEntry]) -> list[FolderEntry]:
        """By number, else by our clock: that of the files may jump."""

        def key(entry: FolderEntry) -> tuple[int, float, int]:
            seen, at = self._since.get(entry.names, (entry, math.inf))
            changed = at if seen == entry else math.inf
            return -1 if entry.number is None else entry.number, changed, entry.modified

        return sorted(entries, key=key)
