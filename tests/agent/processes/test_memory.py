"""How full a container's memory is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainrun._common.kernel import memory_left, memory_used

if TYPE_CHECKING:
    from pathlib import Path


def group(folder: Path, **files: str) -> float | None:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return memory_used(folder / "memory.events")


def test_caches_that_nobody_used_lately_are_no_memory_in_use(tmp_path: Path) -> None:
    stat = "anon 700\ninactive_file 300\n"
    used = group(tmp_path, memory__max="1000", memory__current="900", memory__stat=stat)
    assert used == pytest.approx(0.6)


def test_the_files_of_version_1_are_read_too(tmp_path: Path) -> None:
    used = group(
        tmp_path,
        memory__limit_in_bytes="1000",
        memory__usage_in_bytes="900",
        memory__stat="inactive_file 1\ntotal_inactive_file 400\n",
    )
    assert used == pytest.approx(0.5)


@pytest.mark.parametrize("limit", ["max", str(1 << 62)])
def test_without_a_limit_nothing_can_be_full(tmp_path: Path, limit: str) -> None:
    used = group(tmp_path, memory__max=limit, memory__current="900", memory__stat="")
    assert used is None


def test_without_a_cgroup_nothing_is_known() -> None:
    assert memory_used(None) is None


def test_a_process_may_take_what_is_left_of_the_smallest_limit(tmp_path: Path) -> None:
    whole = memory_left(None)
    assert whole > 1_000_000
    stat = "anon 700\ninactive_file 300\n"
    group(tmp_path, memory__max="1000", memory__current="900", memory__stat=stat)
    assert memory_left(tmp_path / "memory.events") == 400
    group(tmp_path, memory__max="1000", memory__current="1900")
    assert memory_left(tmp_path / "memory.events") == 0
