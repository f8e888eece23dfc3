from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from tests.support.mounts import mounted
from trainrun.agent.folder import taking
from trainrun.agent.folder.entries import FolderEntry, entries_of, hard_links, loose
from trainrun.agent.folder.looking import broken, live, look_at, proven, writer_of
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
    taking.put_back(target, top, {})
    assert (top / "step-1" / "model.bin").read_bytes() == b"one"
    assert (top / "log.txt").read_text() == "1\n2\n"
    assert look_at(top)["step-1/model.bin"].inode != look_at(target)["step-1/model.bin"].inode


def test_one_file_of_several_names_is_stored_once_and_put_back_under_all(
    top: Path, tmp_path: Path
) -> None:
    """As timm has last, checkpoint-N and model_best."""
    assert hard_links(look_at(top)) == {}
    (top / "last").unlink()  # a symbolic link
    (top / "a-best.bin").hardlink_to(top / "step-1" / "model.bin")
    (top / "step-1" / "again.bin").hardlink_to(top / "step-1" / "model.bin")
    look, target = look_at(top), tmp_path / "staging" / "folder-1"
    entry, beside = newest(top), loose(look, "step-*", models=True)
    links = hard_links({**entry.files, **beside})
    assert links == {"a-best.bin": "step-1/again.bin", "step-1/model.bin": "step-1/again.bin"}
    taking.take(top, entry, beside, target)
    assert [p.name for p in target.rglob("*.bin")] == ["again.bin"]
    new = tmp_path / "new"
    taking.put_back(target, new, links)
    assert (new / "a-best.bin").read_bytes() == b"one"
    inodes = {look_at(new)[name].inode for name in ("step-1/again.bin", *links)}
    assert len(inodes) == 1
    taking.put_back(target, new, links)  # again, over what is there
    assert not [path for path in new.iterdir() if path.name.startswith(".trainrun-")]


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


def test_links_that_lead_nowhere_or_in_circles_keep_nothing_from_being_taken(
    top: Path, tmp_path: Path
) -> None:
    (top / "gone").symlink_to(tmp_path / "gone")
    (top / "circle").symlink_to("circle")
    (top / "above").symlink_to("..")
    os.mkfifo(top / "step-1" / "fifo")
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    found = sorted(path.name for path in target.iterdir())
    assert [name for name in found if name != "circle"] == ["last", "log.txt", "step-1"]


def test_a_link_out_of_a_save_is_stored_as_the_file_that_it_leads_to(
    top: Path, tmp_path: Path
) -> None:
    (tmp_path / "base.bin").write_bytes(b"base")
    (top / "step-1" / "base.bin").symlink_to(tmp_path / "base.bin")
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    file = target / "step-1" / "base.bin"
    assert (file.is_symlink(), file.read_bytes()) == (False, b"base")


def test_a_save_with_a_link_to_a_folder_outside_is_refused(top: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (top / "step-1" / "data").symlink_to(tmp_path / "data")
    with pytest.raises(OSError, match="step-1/data links to a folder that is not part of the save"):
        take(top, newest(top), tmp_path / "staging" / "folder-1")


def test_a_link_is_moved_aside_with_what_it_leads_to(top: Path) -> None:
    aside = taking.aside_of(top, top.parent)
    taking.move_aside(top, ["step-1/model.bin"], aside)
    (top / "step-1" / "empty").rmdir()
    (top / "step-2").mkdir()
    (top / "step-2" / "model.bin").write_bytes(b"two")
    (top / "best").symlink_to("step-2/model.bin")
    taking.move_aside(top, ["step-2/model.bin"], aside)
    assert not os.path.lexists(top / "best")
    assert os.path.lexists(aside / "best")


def test_what_cannot_be_moved_beside_a_mounted_folder_is_moved_inside_it(top: Path) -> None:
    with mounted(top, "size=1m"):
        (top / "step-2").mkdir()
        (top / "step-2" / "model.bin").write_bytes(b"two")
        taking.move_aside(top, ["step-2/model.bin"], taking.aside_of(top, top.parent))
        assert [*look_at(top)] == []
        assert (taking.inside_of(top) / "step-2" / "model.bin").read_bytes() == b"two"


def test_a_full_disk_keeps_a_save_from_being_taken_and_leaves_nothing(
    top: Path, tmp_path: Path
) -> None:
    with mounted(tmp_path / "staging", "size=64k") as staging:
        (top / "ckpt.bin").write_bytes(b"x" * 40_000)
        with pytest.raises(OSError, match="the disk has no room for it and for the next save"):
            taking.take(top, newest(top, "ckpt.bin"), {}, staging / "folder-1")
        assert not [*staging.iterdir()]


def test_a_disk_that_fills_in_the_middle_of_a_take_leaves_nothing_staged(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        top, staging = disk / "out", disk / "staging"
        (top / "step-1").mkdir(parents=True)
        staging.mkdir()
        (top / "step-1" / "model.bin").write_bytes(b"one")  # becomes a hard link
        (top / "log.txt").write_bytes(b"x" * 80_000)  # is copied
        with pytest.raises(OSError, match="No space left on device"):
            take(top, newest(top), staging / "folder-1")
        assert not [*staging.iterdir()]
        assert (top / "step-1" / "model.bin").read_bytes() == b"one"


def test_a_disk_that_fills_while_a_save_is_put_back_keeps_what_was_there_and_no_half_file(
    top: Path, tmp_path: Path
) -> None:
    (top / "step-1" / "opt.bin").write_bytes(b"x" * 100_000)
    target = tmp_path / "staging" / "folder-1"
    take(top, newest(top), target)
    with mounted(tmp_path / "small", "size=64k") as small:
        (small / "other.bin").write_bytes(b"other")
        with pytest.raises(OSError, match="No space left on device"):
            taking.put_back(target, small, {})
        found = [path.name for path in small.rglob("*") if path.is_file()]
        assert "opt.bin" not in found
        assert not [name for name in found if name.startswith(".trainrun-")]
        assert (small / "other.bin").read_bytes() == b"other"


def test_of_a_working_directory_only_saves_and_logs_are_looked_at(top: Path) -> None:
    """It may have the data and a virtual environment, of any number of files."""
    for name in ("imagenet/train/1.json", "step-1/deep/a.bin", "wandb/run/1.txt", "a/save-2/b.bin"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")
    (top / "latest").symlink_to("imagenet")
    shown = ["last", "latest", "log.txt", "step-1/deep/a.bin", "step-1/model.bin"]
    assert sorted(look_at(top, within="step-*")) == [*shown, "wandb/run/1.txt"]
    assert "a/save-2/b.bin" in look_at(top, within="*/save-*")
    assert "imagenet/train/1.json" in look_at(top, within="**/x")
    target = top.parent / "staging" / "folder-1"
    taking.take(top, newest(top), {}, target, within="step-*")
    assert sorted(os.listdir(target / "step-1")) == ["deep", "empty", "model.bin"]


def test_a_folder_that_is_not_there_yet_shows_nothing(tmp_path: Path) -> None:
    assert look_at(tmp_path / "late") == {}


def test_only_a_format_that_shows_its_end_proves_a_young_save(top: Path) -> None:
    assert not proven(top, newest(top), ())
    (top / "step-1" / "model.bin").write_bytes(a_zip())
    assert proven(top, newest(top), ())
    (top / "step-1" / "opt.bin").write_bytes(b"x")
    assert not proven(top, newest(top), ())  # a third file may be missing
    assert proven(top, newest(top), ("*/model.bin",))
    assert not proven(top, newest(top), ("*/opt.bin",))
