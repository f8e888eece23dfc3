"""`trainrun tasks`: what a user sees of a program of tasks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.tasks.conftest import WrittenLog, call, key
from trainrun.tasks.keys import code_of_module
from trainrun.tasks.records import Cancelled, Over, Rebuild

PROGRAM = "def tokenize(name):\n    return helper(name)\n\ndef helper(name):\n    return name\n"


def a_day(log: WrittenLog) -> None:
    """One done after a retry, one rebuilt, one failed, one cancelled, one that runs."""
    log.begin()
    log.start("a")
    log.fail("a")
    log.start("a", number=2)
    log.finish("a", number=2, after=12)
    log.start("b")
    log.finish("b")
    log.write(Rebuild(key=key("b"), generation=2, why="its object was deleted"))
    log.start("b", number=2, generation=2)
    log.finish("b", number=2, generation=2)
    log.start("c")
    log.fail(
        "c",
        reason="Raised",
        message="tokenize('c') failed: ValueError: no such shard",
        final=True,
        counted=False,
    )
    log.start("d")
    log.write(Cancelled(key=key("d")))
    log.start("e", worker=3)


def test_the_counts_the_failed_and_the_slowest_are_shown(log: WrittenLog) -> None:
    a_day(log)
    lines = call().output.splitlines()
    assert lines[0] == ("Tasks: 2 done, 1 running, 1 failed, 1 cancelled, 1 retries, 1 rebuilt")
    assert lines[1].endswith("/.trainrun/tasks/prepare")
    assert "starts: 1; last entry " in lines[2]
    assert lines[3:8] == [
        "",
        "Failed:",
        "    tokenize('c') failed: ValueError: no such shard",
        "",
        "Slowest:",
    ]
    assert "tokenize('e')" in lines[8]
    assert lines[8].endswith(", running")
    assert lines[9].endswith("12 s")
    assert all(len(line) < 80 for line in lines[2:])
    assert "\x1b" not in "".join(lines)


def test_json_holds_every_task(log: WrittenLog) -> None:
    a_day(log)
    found = json.loads(call("prepare.py", "--json").output)
    assert found["version"] == 1
    assert found["counts"]["retries"] == 1
    states = {task["call"]: task["state"] for task in found["tasks"]}
    assert states["tokenize('c')"] == "failed"
    assert states["tokenize('e')"] == "running"
    assert len(states) == 5


def test_what_ran_under_a_driver_that_died_waits(log: WrittenLog) -> None:
    log.begin()
    log.start("a", worker=0)
    log.start("b", worker=1)
    log.begin(1, session="another")
    found = json.loads(call("--json").output)
    assert found["counts"]["waiting"] == 2
    log.start("b", number=2)
    log.finish("b", number=2)
    assert json.loads(call("--json").output)["counts"]["retries"] == 1
    log.write(Over(outcome="Returned"))
    assert "starts: 2; the program has returned" in call().output


def test_done_tasks_are_named_where_their_module_has_changed(
    log: WrittenLog, tmp_path: Path
) -> None:
    program = tmp_path / "prepare.py"
    program.write_text(PROGRAM)
    log.begin()
    log.start("a", code=code_of_module("__main__", program))
    log.finish("a")
    assert "changed:" not in call().output
    program.write_text(PROGRAM + "# said more clearly\n")
    assert "changed:" not in call().output
    program.write_text(PROGRAM.replace("return name", "return name.lower()"))
    assert "! made by code that has changed: 1 of tokenize. The results" in call().output
    assert json.loads(call("--json").output)["stale"] == {"__main__:tokenize": [key("a")]}


def test_two_codes_in_the_log_are_enough_where_the_file_is_not_here(log: WrittenLog) -> None:
    log.begin()
    log.start("a", code="old")
    log.finish("a")
    log.start("b", code="new")
    text = " ".join(call(log.folder).output.split())
    assert "made by code that has changed: 1 of tokenize. The results are kept" in text


def test_a_folder_without_a_program_says_what_to_name(tmp_path: Path, log: WrittenLog) -> None:
    assert "programs of tasks started in this folder: []; name one" in call(code=2).stderr
    log.begin()
    (tmp_path / ".trainrun/tasks/export").mkdir()
    assert "['export', 'prepare']; name one" in call(code=2).stderr
    assert "there is no log of tasks" in call("export.py", code=2).stderr
    assert call("prepare.py").output
