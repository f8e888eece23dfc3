from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from trainrun.agent.folder import taking
from trainrun.agent.folder.entries import FolderEntry, entries_of, loose
from trainrun.agent.folder.looking import broken, live, look_at, writer_of
from trainrun.agent.folder.taking import EntryChanged


@pytest.fixture
def top(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    (folder / "step-1" / "empty").mkdir(parents=True)
    (folder / "step-1" / "model.bin").write_bytes(b"one")
    (folder / "last").symlink_to("step-1")
    (folder / "log.txt").write_text("1\n")
    return folder


def newest(top: Path, pattern: str = "step-*") -> FolderEntry:
    return entries_of(look_at(top), pattern)[-1]


def take(top: Path, entry: FolderEntry, target: Path) -> None:
    taking.take(top, entry, loose(look_at(top), "step-*", models=False), target)


def test_a_save_is_staged_with_its_empty_folders_the_links_to_it_and_the_logs(
    top: Path, tmp_path: Path
) -> None:
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
    assert found == ["last", "log.txt", "step-1", "step-1/empty", "step-1/model.bin"]
    assert (target / "last" / "model.bin").read_bytes() == b"one"


def test_a_staged_save_stays_when_the_script_deletes_or_replaces_its_own(
    top: Path, tmp_path: Path
) -> None:
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    new = top / "new"
    new.write_bytes(b"two")
    new.replace(top / "step-1" / "model.bin")
    assert (target / "step-1" / "model.bin").read_bytes() == b"one"


def test_files_that_are_overwritten_in_place_are_copied(top: Path, tmp_path: Path) -> None:
    (top / "ckpt.bin").write_bytes(b"one")
    target = tmp_path / "staging" / "folder-1"
    taking.take(top, newest(top, "ckpt.bin"), {}, target)
    (top / "ckpt.bin").write_bytes(b"two")
    assert (target / "ckpt.bin").read_bytes() == b"one"


@pytest.mark.parametrize("change", ["write", "delete"])
def test_a_save_that_changed_since_it_was_judged_is_not_staged(
    top: Path, tmp_path: Path, change: str
) -> None:
    entry, target = newest(top), tmp_path / "staging" / "folder-1"
    file = top / "step-1" / "model.bin"
    if change == "write":
        file.write_bytes(b"longer")
    else:
        file.unlink()
    with pytest.raises(EntryChanged):
        take(top, entry, target)
    assert not [*target.parent.iterdir()]


def test_what_is_put_back_replaces_what_differs_and_keeps_logs_that_have_grown(
    top: Path, tmp_path: Path
) -> None:
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    (top / "step-1" / "model.bin").unlink()
    (top / "step-1" / "model.bin").write_bytes(b"torn")
    (top / "log.txt").write_text("1\n2\n")
    taking.put_back(target, top)
    assert (top / "step-1" / "model.bin").read_bytes() == b"one"
    assert (top / "log.txt").read_text() == "1\n2\n"
    assert look_at(top)["step-1/model.bin"].inode != look_at(target)["step-1/model.bin"].inode


def test_what_is_moved_aside_replaces_what_was_moved_before_and_leaves_no_empty_folder(
    top: Path,
) -> None:
    aside = taking.aside_of(top, top.parent)
    taking.move_aside(top, ["log.txt"], aside)
    taking.move_aside(top, ["step-1/model.bin"], aside)
    assert [path.name for path in aside.iterdir()] == ["step-1"]
    assert sorted(path.name for path in top.iterdir()) == ["last", "step-1"]  # with "empty"
    assert taking.aside_of(top, top) == top / ".trainrun" / "aside"
    assert not [name for name in look_at(top) if name.startswith(".trainrun")]


def a_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", b"x" * 1000)
    return buffer.getvalue()


def a_safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * 16


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("model.pt", a_zip(), "is a zip archive without its end"),
        ("model.safetensors", a_safetensors(), "does not have its full size"),
        ("state.json", b'{"step": 1}', "is not JSON"),
    ],
)
def test_a_file_whose_format_shows_its_end_must_have_it(
    top: Path, name: str, content: bytes, why: str
) -> None:
    file = top / "step-1" / name
    file.write_bytes(content)
    assert broken(top, newest(top)) == ""
    file.write_bytes(content[:-3])
    assert broken(top, newest(top)) == f"step-1/{name} {why}"


def test_a_file_of_distributed_checkpoints_needs_its_metadata(top: Path) -> None:
    (top / "step-1" / "__0_0.distcp").write_bytes(b"x")
    assert "its .metadata does not" in broken(top, newest(top))


def test_a_process_that_has_a_file_open_for_writing_is_named(top: Path) -> None:
    assert writer_of(top, newest(top)) == ""
    with (top / "step-1" / "model.bin").open("ab"):
        assert "has step-1/model.bin open for writing" in writer_of(top, newest(top))


def test_a_process_that_has_ended_does_not_live() -> None:
    assert live({0: os.getpid()})
    assert not live({0: os.getpid(), 1: 2**22 + 1})
