"""Programs of tasks that run outside of a run, as their users start them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.task_logs import records_of
from trainrun.tasks.records import Record

SCRIPTS = Path(__file__).parent / "scripts"
TIMEOUT = 120.0
"""Seconds; generous, since tests share the machine."""


@dataclass
class Programs:
    """One program, started as often as a test likes; its log and its results stay."""

    folder: Path
    script: str
    env: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, **env: Any) -> subprocess.Popen[str]:
        given = {name: it if isinstance(it, str) else json.dumps(it) for name, it in env.items()}
        process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / self.script), *arguments],
            env={**os.environ, "FOLDER": str(self.folder), **self.env, **given},
            cwd=self.folder.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **env: Any) -> list[str]:
        """The lines that it prints; it must end well."""
        out, err = (process := self.start(*arguments, **env)).communicate(timeout=TIMEOUT)
        assert process.returncode == 0, err[-4000:]
        return out.splitlines()

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()

    @property
    def ran(self) -> list[str]:
        """What tasks have noted, since it was asked for last."""
        path = self.folder / "ran.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(lines)

    def records(self) -> list[Record]:
        """All records of the log."""
        return records_of(self.folder)

    def count(self, kind: str) -> Counter[str]:
        """Records of this kind, by key."""
        return Counter(it.key for it in self.records() if it.kind == kind)  # type: ignore[union-attr]

    def key(self, name: str) -> str:
        found: str = json.loads((self.folder / "keys.json").read_text())[name]
        return found

    def object(self, name: str, index: int = 0) -> Path:
        """The newest generation's."""
        return sorted((self.folder / "tasks/objects").glob(f"{self.key(name)}-*"))[-1] / str(index)

    def forget(self, *names: str, copies: bool = True) -> None:
        """Delete results, and by default the copies that the machine has."""
        for name in names:
            self.object(name, int(name.partition(".")[2] or 0)).unlink()
        if copies:
            shutil.rmtree(self.folder / "cache")
