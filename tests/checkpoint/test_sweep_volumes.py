"""A long log of a sweep is read from copies of many records, and never believes a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sweeps import asked, begun
from trainrun.checkpoint.numbered_log import parts
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import StoreUnavailable, SweepLogDamaged

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.store import ObjectStore

SIZE = 4
FIRST, SECOND = "log/000000001-000000004.jsonl", "log/000000005-000000008.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> RunStore:
    store = open_store(tmp_path.as_uri())
    store.probe()
    return RunStore(store, "lr-search")


def a_log(folder: RunStore, *, records: int = 10, size: int = SIZE) -> SweepLog:
    """Written from its beginning: somebody takes the search up, and asks."""
    log = SweepLog(folder, volume=size)
    for trial in range(records):
        assert log.append(asked(trial - 1) if trial else begun())
    return log


def there(folder: RunStore) -> list[str]:
    return [it.key for it in folder.objects("log/") if it.key.endswith(".jsonl")]


def requested(folder: RunStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which objects a log that is read from its beginning asks for."""
    asked_for: list[str] = []
    get = folder.store.get

    def noting(key: str) -> bytes:
        asked_for.append(key.removeprefix("lr-search/log/"))
        return get(key)

    with monkeypatch.context() as patched:
        patched.setattr(folder.store, "get", noting)
        SweepLog(folder, volume=SIZE).read_on()
    return sorted(asked_for)


def test_each_so_many_records_are_copied_into_one_object_and_read_from_it(
    folder: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(folder)
    assert there(folder) == [FIRST, SECOND]
    assert SweepLog(folder, volume=SIZE).read_on() == log.view
    # Of the records those behind the volumes, the one that is not there yet, and each volume's
    # first and last, which say whether it is a copy.
    assert requested(folder, monkeypatch) == [
        "000000001-000000004.jsonl",
        "000000001.json",
        "000000004.json",
        "000000005-000000008.jsonl",
        "000000005.json",
        "000000008.json",
        "000000009.json",
        "000000010.json",
        "000000011.json",
    ]


def test_who_reads_a_log_with_volumes_goes_on_where_they_end(folder: RunStore) -> None:
    a_log(folder)
    log = SweepLog(folder, volume=SIZE)
    log.read_on()
    for trial in (9, 10):
        assert log.append(asked(trial))
    assert there(folder) == [FIRST, SECOND, "log/000000009-000000012.jsonl"]
    assert SweepLog(folder).read_on() == log.view


def test_a_log_that_was_written_without_volumes_gets_them_with_its_next_record(
    folder: RunStore,
) -> None:
    a_log(folder, size=1000)
    assert there(folder) == []
    log = SweepLog(folder, volume=SIZE)
    log.read_on()
    assert there(folder) == []  # who only reads writes nothing
    assert log.append(asked(9))
    assert there(folder) == [FIRST, SECOND]


def test_a_volume_that_could_not_be_written_is_written_later(
    folder: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_key: str, _data: bytes) -> None:
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(folder.store, "put", away)
        log = a_log(folder, records=9)
    assert (there(folder), log.view.position) == ([], 9)
    assert log.append(asked(8))
    assert there(folder) == [FIRST, SECOND]


def damaged(store: ObjectStore, key: str) -> None:
    store.put(key, store.get(key).replace(b'"trial":1', b'"trial":7'))


def cut(store: ObjectStore, key: str) -> None:
    store.put(key, store.get(key)[:-30])


def emptied(store: ObjectStore, key: str) -> None:
    store.put(key, b"")


def of_another_log(store: ObjectStore, key: str) -> None:
    store.put(key, store.get(key).replace(b'"trial":2', b'"trial":1'))


def begun_by_another(store: ObjectStore, key: str) -> None:
    store.put(key, store.get(key).replace(b'"uid":"me"', b'"uid":"it"'))


def without_a_record(store: ObjectStore, key: str) -> None:
    store.put(key, b"".join(store.get(key).splitlines(keepends=True)[1:]))


@pytest.mark.case("sweeps", "A copy of 256 log records is damaged or cannot be written")
@pytest.mark.parametrize(
    "spoil", [damaged, cut, emptied, of_another_log, begun_by_another, without_a_record]
)
def test_of_a_wrong_volume_nothing_is_believed(
    folder: RunStore, spoil: Callable[[ObjectStore, str], None]
) -> None:
    log = a_log(folder)
    before = folder.store.get(f"lr-search/{FIRST}")
    spoil(folder.store, f"lr-search/{FIRST}")
    assert folder.store.get(f"lr-search/{FIRST}") != before
    again = SweepLog(folder, volume=SIZE)
    assert again.read_on() == log.view
    for trial in (9, 10):
        assert again.append(asked(trial))
    assert SweepLog(folder).read_on() == again.view


@pytest.mark.case("sweeps", "The newest records of a sweep's log are lost")
@pytest.mark.parametrize("kept", [0, 6, 7])
def test_a_log_that_has_lost_records_of_which_a_copy_is_left_is_not_gone_on_with(
    folder: RunStore, kept: int
) -> None:
    """Later records would have been mixed with those of the copy."""
    a_log(folder, records=8)
    lost = [f"log/{position:09d}.json" for position in range(kept + 1, 9)]
    folder.delete(lost)
    copy = FIRST if kept == 0 else SECOND
    with pytest.raises(SweepLogDamaged, match=rf"it is missing, but {copy} holds a copy of it \("):
        SweepLog(folder).read_on()
    log = SweepLog(folder)
    assert log.read_before_damage() is not None
    assert log.view.position == kept, "what stands before can be exported"
    folder.delete([FIRST, SECOND] if kept == 0 else [SECOND])
    assert SweepLog(folder).read_on().position == kept


def test_a_damaged_record_that_no_volume_has_is_named(folder: RunStore) -> None:
    a_log(folder)
    damaged(folder.store, f"lr-search/{FIRST}")
    folder.delete(["log/000000003.json"])
    with pytest.raises(SweepLogDamaged, match=r"003\.json: its checksum does not match"):
        SweepLog(folder).read_on()


def test_records_are_read_in_parts_and_each_once() -> None:
    volumes = {5: range(5, 9), 1: range(1, 5), 12: range(12, 16)}
    found = [list(part) for part in parts(volumes, 17, size=2)]
    assert found == [
        [1, 2, 3, 4], [5, 6, 7, 8], [9, 10], [11], [12, 13, 14, 15], [16, 17],
    ]  # fmt: skip
    assert list(parts({}, 0, size=2)) == []
