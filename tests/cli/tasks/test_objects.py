"""`trainrun tasks verify` and `gc`: the objects of a program."""

from __future__ import annotations

from tests.cli.tasks.conftest import WrittenLog, call, key
from trainrun.tasks.records import Over, Rebuild


def two_objects(log: WrittenLog) -> None:
    """And a result in the log."""
    log.begin()
    for name, data in (("a", b"tokens"), ("b", b"more"), ("small", b"")):
        log.start(name)
        log.finish(name, data=data)


def test_objects_that_are_missing_or_damaged_are_found(log: WrittenLog) -> None:
    two_objects(log)
    well = call("verify").output
    assert well == "objects read: 2, missing or damaged: 0\n"
    log.upload(f"{key('a')}-1/0", b"t0kens")
    log.keep.delete([f"{key('b')}-1/0"])
    text = " ".join(call("verify", code=4).output.split())
    assert f"{key('a')[:12]} tokenize('a') done {key('a')}-1/0 has sha256 " in text
    assert f"{key('b')}-1/0 is missing" in text
    assert "objects read: 2, missing or damaged: 2 The program rebuilds each" in text


def test_what_no_task_needs_is_deleted_once_the_program_has_returned(log: WrittenLog) -> None:
    two_objects(log)
    log.write(Rebuild(key=key("a"), generation=2, why="deleted"))
    log.start("a", number=2, generation=2)
    log.finish("a", number=2, generation=2, data=b"tokens")
    log.upload(f"{key('never')}-1/0", b"half")
    assert "the program has not returned" in call("gc", code=2).stderr
    log.write(Over(outcome="Returned"))
    dead = sorted([f"{key('a')}-1/0", f"{key('never')}-1/0"])
    lines = call("gc", "--dry-run").output.splitlines()
    assert lines == [*dead, "2 of 4 objects would be deleted (10 B)"]
    assert len(log.keep.names()) == 4
    assert call("gc").output == "2 of 4 objects deleted (10 B)\n"
    assert sorted(log.keep.names()) == sorted([f"{key('a')}-2/0", f"{key('b')}-1/0"])
    assert "objects read: 2, missing or damaged: 0" in call("verify").output
