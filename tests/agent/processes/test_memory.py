"""How full a container's memory is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainrun.agent.processes.usage import Memory

if TYPE_CHECKING:
    from pathlib import Path


def group(folder: Path, **files: str) -> Memory:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return Memory(folder / "memory.events")


def test_caches_that_nobody_used_lately_are_no_memory_in_use(tmp_path: Path) -> None:
    stat = "anon 700\ninactive_file 300\n"
    memory = group(tmp_path, memory__max="1000", memory__current="900", memory__stat=stat)
    assert memory.used() == pytest.approx(0.6)


def test_the_files_of_version_1_are_read_too(tmp_path: Path) -> None:
    memory = group(
        tmp_path,
        memory__limit_in_bytes="1000",
        memory__usage_in_bytes="900",
        memory__stat="inactive_file 1\ntotal_inactive_file 400\n",
    )
    assert memory.used() == pytest.approx(0.5)


@pytest.mark.parametrize("limit", ["max", str(1 << 62)])
def test_without_a_limit_nothing_can_be_full(tmp_path: Path, limit: str) -> None:
    memory = group(tmp_path, memory__max=limit, memory__current="900", memory__stat="")
    assert memory.used() is None


def test_without_a_cgroup_nothing_is_known() -> None:
    assert Memory(None).used() is None
