"""A program of tasks of which the log is written as a driver writes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.tasks.calls import object_name
from trainrun.tasks.records import Batch, Began, Dispatched, Done, Failed, Output, Record
from trainrun.tasks.task_storage import to_bytes
from trainrun_operator.cli.commands import trainrun

NOON = 1_700_000_000.0


def key(name: str) -> str:
    """Of a call that tests name so."""
    return hashlib.sha256(name.encode()).hexdigest()


@dataclass
class WrittenLog:
    """Appends what a driver would."""

    keep: TaskFolder
    scratch: Path
    session: str = "driver"
    now: float = NOON
    position: int = 0

    def write(self, *records: Record, after: float = 1.0) -> None:
        self.now += after
        self.position += 1
        batch = Batch(session=self.session, records=records, time=self.now)
        assert self.keep.append(self.position, to_bytes(batch))

    def begin(self, *lost: int, session: str = "driver") -> None:
        self.session = session
        self.write(Began(session=session, lost=lost))

    def start(
        self, name: str, *, number: int = 1, generation: int = 1, worker: int = 0, **more: object
    ) -> None:
        first = {"function": "__main__:tokenize", "arguments": f"tokenize('{name}')", "code": "old"}
        told = {**(first if number == 1 else {}), **more}
        self.write(
            Dispatched(
                key=key(name),
                generation=generation,
                number=number,
                worker=worker,
                **told,  # type: ignore[arg-type]
            )
        )

    def finish(
        self,
        name: str,
        *,
        number: int = 1,
        generation: int = 1,
        data: bytes = b"",
        after: float = 1,
    ) -> None:
        """With a result in the store, or a small one in the record."""
        digest = hashlib.sha256(data).hexdigest()
        output = Output(digest=digest, size=len(data), inline="" if data else "gASVBA==")
        if data:
            self.upload(object_name(key(name), number, 0), data)
        done = Done(
            key=key(name),
            generation=generation,
            number=number,
            worker=0,
            seconds=after,
            outputs=(output,),
        )
        self.write(done, after=after)

    def fail(self, name: str, *, number: int = 1, **how: object) -> None:
        told = {"reason": "Signalled", "message": "killed by SIGSEGV", **how}
        self.write(Failed(key=key(name), number=number, **told))  # type: ignore[arg-type]

    def upload(self, name: str, data: bytes) -> None:
        file = self.scratch / "object"
        file.write_bytes(data)
        self.keep.upload(file, name)

    @property
    def folder(self) -> Path:
        return Path(self.keep.folder.uri.removeprefix("file://"))


def log_in(folder: Path, scratch: Path) -> WrittenLog:
    """In the folder of a run, or of a program that was started by itself."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(folder.parent.as_uri())
    return WrittenLog(TaskFolder(RunStore(store, folder.name), patience=0), scratch)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenLog:
    """That of prepare.py, which was started in the working folder."""
    monkeypatch.chdir(tmp_path)
    return log_in(tmp_path / ".trainrun/tasks/prepare", tmp_path)


def call(*words: str | Path, code: int = 0) -> Result:
    """`trainrun tasks ...`, which must exit with this code."""
    result = CliRunner().invoke(trainrun, ["tasks", *map(str, words)])
    assert result.exit_code == code, result.output
    return result
