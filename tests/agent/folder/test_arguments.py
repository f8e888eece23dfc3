from __future__ import annotations

import pytest

from trainrun.agent.folder.arguments import NoSuchFile, newest_path, resume_args, resumed
from trainrun.agent.folder.entries import FileFacts, FolderEntry
from trainrun.agent.processes.group import Launch
from trainrun.contract.answer import FolderRule

FILE = FileFacts(inode=1, size=1, modified=1)
SAVE = FolderEntry(
    number=500,
    names=("ema_0.9_000500.pt", "model000500.pt"),
    files={"ema_0.9_000500.pt": FILE, "model000500.pt": FILE},
)


def rule(*words: str, path: str = "out", second: bool = False) -> FolderRule:
    return FolderRule(path=path, resume_args=words, from_second_attempt=second)


def test_words_name_the_restored_save_and_its_files_as_the_script_opens_them() -> None:
    words = rule("--resume", "{newest}", "--model={file:model*.pt}", path="./out/")
    found = resume_args(words, SAVE, attempt=2)
    assert found == ("--resume", "out/ema_0.9_000500.pt", "--model=out/model000500.pt")
    assert newest_path(rule(path="/data/out"), ()) == "/data/out"


def test_without_a_restored_save_there_are_no_words() -> None:
    assert resume_args(rule("--resume", "latest"), None, attempt=2) == ()


def test_words_that_name_no_save_are_given_from_the_second_attempt_on() -> None:
    latest = rule("--resume", "latest", second=True)
    assert resume_args(latest, None, attempt=1) == ()
    assert resume_args(latest, None, attempt=2) == ("--resume", "latest")
    assert resume_args(rule("--resume={newest}", second=True), None, attempt=2) == ()


def test_a_file_that_the_save_does_not_have_is_named() -> None:
    with pytest.raises(NoSuchFile, match=r"matches \{file:opt\*\}"):
        resume_args(rule("{file:opt*}"), SAVE, attempt=2)


def a_launch(*command: str) -> Launch:
    environment = {"TRAINRUN_RUN_ID": "r-1", "HOME": "/h"}
    return Launch(rank=0, command=command, working_dir="", environment=environment)


def test_the_words_are_appended_and_stand_in_the_environment() -> None:
    found = resumed(a_launch("train"), "out/a b", ("--resume", "out/a b"))
    assert found.command == ("train", "--resume", "out/a b")
    assert found.environment["TRAINRUN_RESUME_PATH"] == "out/a b"
    assert found.environment["TRAINRUN_RESUME_ARGS"] == "--resume 'out/a b'"


def test_a_command_may_name_the_run_and_what_it_resumes_from() -> None:
    command = ("train", "--name=$(TRAINRUN_RUN_ID)", "$(TRAINRUN_RESUME_ARGS)", "$(HOME)")
    found = resumed(a_launch(*command), "out/a", ("--resume", "out/a"))
    assert found.command == ("train", "--name=r-1", "--resume out/a", "$(HOME)")
    fresh = resumed(a_launch(*command), "", ())
    assert fresh.command == ("train", "--name=r-1", "", "$(HOME)")
    assert "TRAINRUN_RESUME_PATH" not in fresh.environment
