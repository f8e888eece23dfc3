"""The private folder of a worker."""

from __future__ import annotations

from pathlib import Path

from trainrun.agent.processes.folders import Folders


def test_files_of_lower_attempts_are_forgotten(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    for attempt in (1, 2, 10):
        folders.of_rank(attempt, 0)
    folders.forget_below(10)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["attempt-10"]


def test_caches_of_compilers_outlive_attempts_and_agents(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "worker"))
    folders.prepare()
    made = tmp_path / "worker" / "compiled" / "cuda" / "kernel"
    made.touch()
    folders.forget_below(10)
    Folders(str(tmp_path / "worker")).prepare()
    assert made.exists()
