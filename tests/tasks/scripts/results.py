"""What `get`, `wait`, `put` and `cancel` answer, checked where a program sees it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainrun import tasks

FOLDER = Path(os.environ["FOLDER"])


class Refused(Exception):
    def __init__(self, shard: int, why: str) -> None:
        super().__init__(f"shard {shard}: {why}")
        self.shard = shard

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return Refused, (self.shard, "broken")


@tasks.task
def nap(seconds: float, name: str) -> str:
    time.sleep(seconds)
    return name


@tasks.task
def refuse(shard: int) -> None:
    raise Refused(shard, "broken")


@tasks.task
def no_file() -> str:
    return Path("/no/such/file").read_text()


@tasks.task(num_returns=3)
def three(start: int) -> tuple[int, ...]:
    return start, start + 1, start + 2


@tasks.task
def folder(words: str) -> tasks.Folder:
    out = tasks.output_directory()
    (out / "words.txt").write_text(words)
    return out


@tasks.task
def words_in(given: tasks.Folder) -> str:
    return (given / "words.txt").read_text()


def raised(ref: object, kind: type[Exception], **options: float) -> Exception:
    try:
        value = tasks.get(ref, **options)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}: {value!r}")


def waits() -> None:
    quick, slow = nap.remote(0.0, "quick"), nap.remote(60.0, "slow")
    assert tasks.wait([slow, quick]) == ([quick], [slow])
    assert tasks.wait([slow, quick], num_returns=2, timeout=0.05) == ([quick], [slow])
    assert tasks.wait([quick], timeout=0) == ([quick], [])
    error = raised([quick, slow], tasks.GetTimeoutError, timeout=0.05)
    assert "1 of 2 results are not there after 0.05 s" in str(error), error
    assert isinstance(error, TimeoutError)
    tasks.cancel(slow)
    raised(slow, tasks.TaskCancelledError)
    assert tasks.wait([slow]) == ([slow], [])


def errors() -> None:
    ref = refuse.remote(7)
    for _ in range(2):
        error = raised(ref, Refused)
        assert isinstance(error, tasks.TaskError)
        assert error.shard == 7
        assert 'raise Refused(shard, "broken")' in str(error), error
        assert "refuse(7)" in str(error), error
    missing = raised(no_file.remote(), FileNotFoundError)
    assert missing.errno == 2
    assert missing.filename == "/no/such/file"
    # The first that is known to fail is raised at once.
    raised([nap.remote(60.0, "never"), ref], Refused)
    raised(nap.remote(0.0, ref), tasks.TaskError)


def values() -> None:
    given = tasks.put({"large": bytes(100_000), "small": 1})
    assert tasks.get(given) == {"large": bytes(100_000), "small": 1}
    assert tasks.get([given, given])[1]["small"] == 1
    assert tasks.get(three.remote(5)) == [5, 6, 7]
    assert tasks.get(nap.remote(0.0, three.remote(2)[1])) == 3
    made = folder.remote("some words")
    assert tasks.get(words_in.remote(made)) == "some words"
    assert (tasks.get(made) / "words.txt").read_text() == "some words"
    assert tasks.get([]) == []


def main() -> None:
    waits()
    errors()
    values()
    print("as promised")


if __name__ == "__main__":
    tasks.run(main, storage=FOLDER)
