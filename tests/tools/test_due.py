"""`make due`: which parts of the night a change asks for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tools import due
from tools.due import ROOT, asked_for

MAKEFILE = """
kills: install ## many kills
\t@# asked for by core/ kills.py
\t@run kills

quick: install ## a minute
\t@run quick

mutants: install ## small mistakes
\t@# asked for by core/run/
\t@run mutants
"""


def test_a_target_is_due_when_a_file_has_changed_that_asks_for_it() -> None:
    asked = asked_for(MAKEFILE)
    assert due.due(asked, ["core/run/a.py", "core/b.py", "docs/kills.py"]) == {
        "kills": ["core/run/a.py", "core/b.py"],
        "mutants": ["core/run/a.py"],
    }
    assert due.due(asked, ["README.md"]) == {}


def test_what_was_committed_and_what_was_not_is_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(due, "ROOT", tmp_path)
    git("init", "-b", "main")
    for name, text in {"Makefile": MAKEFILE, "kills.py": "", "core.md": ""}.items():
        (tmp_path / name).write_text(text)
    git("add", ".")
    git("commit", "-m", "begin")
    monkeypatch.setattr("sys.argv", ["due", "main"])
    due.main()
    assert capsys.readouterr().out == "nothing of make nightly\n"

    git("switch", "-c", "change")
    (tmp_path / "core" / "run").mkdir(parents=True)
    (tmp_path / "core" / "run" / "a.py").touch()
    git("add", ".")
    git("commit", "-m", "change")
    (tmp_path / "kills.py").write_text("kill")
    (tmp_path / "core" / "new.py").touch()
    due.main()
    assert capsys.readouterr().out.splitlines() == [
        "make kills            core/run/a.py and 2 more",
        "make mutants          core/run/a.py",
    ]


def test_a_commit_that_is_none_is_told_as_git_tells_it() -> None:
    with pytest.raises(SystemExit, match="Not a valid object name nowhere"):
        due.changed_since("nowhere")


def test_all_that_the_night_tries_says_which_paths_ask_for_it_and_these_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    nightly = re.search(r"^NIGHTLY := (.+)$", makefile, re.MULTILINE)
    assert nightly
    asked = asked_for(makefile)
    assert set(nightly[1].split()) == set(asked)
    gone = [path for paths in asked.values() for path in paths if not [*ROOT.glob(f"{path}*")]]
    assert gone == []
