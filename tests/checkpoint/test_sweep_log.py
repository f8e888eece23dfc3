"""The log of a sweep in a real folder: several write at once, records are lost or damaged."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.sweeps import a_search, asked, begun, report, told
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectInfo, ObjectStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import StoreUnavailable, SweepLogDamaged
from trainrun.sweep.records import Ask, End, EndedRun, LogEntry, Record, Reports, Targets
from trainrun_operator.core.sweep.config import folder_name


@pytest.fixture
def folder(tmp_path: Path) -> RunStore:
    store = open_store(tmp_path.as_uri())
    store.probe()
    return RunStore(store, "lr-search")


def test_a_log_is_read_as_it_was_written_by_another_process(folder: RunStore) -> None:
    ended = EndedRun(trial=0, opening=1, succeeded=True, attempt=1, seq=1)
    first = SweepLog(folder)
    first.settle(Targets(session=begun()), a_search())
    first.settle(Targets(session=begun(), asked=2), a_search())
    reports = (report(0, 1, float("inf")), report(0, 2, 0.1))
    first.settle(Targets(session=begun(), ended=(ended,)), a_search(), stored=reports)

    again = SweepLog(folder)

    assert again.read_on() == first.view
    assert (again.view.position, again.view.asked, again.view.trials[0].value) == (5, 2, 0.1)
    assert (Path(folder.store.root) / "lr-search/log/000000005.json").is_file()  # type: ignore[attr-defined]


def test_four_clerks_at_once_ask_each_number_once(folder: RunStore) -> None:
    logs = [SweepLog(folder) for _ in range(4)]
    barrier = threading.Barrier(4)

    def write(log: SweepLog) -> None:
        barrier.wait()
        for asked_for in range(1, 11):
            log.settle(Targets(session=begun(), asked=asked_for), a_search(), active=10.0)

    threads = [threading.Thread(target=write, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    views = [log.read_on() for log in logs]
    assert views == [views[0]] * 4
    assert views[0].asked == 10
    assert len(views[0].sessions) == 1
    records: list[Record] = []
    SweepLog(folder, on_record=records.append).read_on()
    assert [it.trial for it in records if isinstance(it, Ask)] == list(range(10))


def test_the_loser_of_a_race_reads_what_the_winner_wrote(folder: RunStore) -> None:
    winner, loser = SweepLog(folder), SweepLog(folder)
    for log in (winner, loser):
        log.settle(Targets(session=begun()), a_search())
    assert winner.append(End("Succeeded", "BudgetExhausted", "spent"))

    assert not loser.append(asked(0))

    view = loser.settle(Targets(session=begun(), asked=1), a_search())
    assert (view.asked, view.end is not None) == (0, True)


@pytest.mark.case(
    "sweeps", "A record of a sweep's log is missing or damaged", counted="the sweep stops"
)
def test_a_damaged_record_is_named_and_nothing_is_guessed(folder: RunStore) -> None:
    log = SweepLog(folder)
    for record in (begun(), asked(0), told(0)):
        assert log.append(record)
    data = folder.store.get("lr-search/log/000000002.json")
    folder.store.put("lr-search/log/000000002.json", data.replace(b"0.1", b"0.2"))

    with pytest.raises(SweepLogDamaged) as damaged:
        SweepLog(folder).read_on()
    assert str(damaged.value) == (
        f"{folder.uri}/log/000000002.json: its checksum does not match: its content changed. The "
        "log is the only record of the trials, so TrainRun does not guess what is missing: put the "
        "object back from a copy or an older version of it (`trainrun sweep leave-out` replaces "
        "one that held only points of curves), or start again with another "
        "spec.storage.sweepName; the trials' checkpoints stay below "
        f"{folder.uri}/trials/, and `trainrun sweep export --before-damage` writes the results "
        "before the damage"
    )
    folder.delete(["log/000000002.json"])
    log = SweepLog(folder)
    for _ in range(2):  # whoever tries again must not take the hole for the end
        with pytest.raises(SweepLogDamaged, match="it is missing, but record 3 exists"):
            log.read_on()


def test_a_damaged_record_of_points_may_be_left_out_and_costs_no_more_than_these(
    folder: RunStore,
) -> None:
    """One damaged record of curve points cost the whole search."""
    log = SweepLog(folder)
    lost, kept = Reports((report(0, 1, 0.5),)), Reports((report(0, 2, 0.25),))
    for record in (begun(), asked(0), lost, kept, told(0, value="0.25", step=2)):
        assert log.append(record)
    key = "log/000000003.json"
    data = folder.store.get(folder.key(key))[:-40]
    folder.store.put(folder.key(key), data)

    where = SweepLog(folder).leave_out(3)

    assert where == f"{folder.uri}/{key}.damaged"
    assert folder.store.get(folder.key(f"{key}.damaged")) == data
    trial = SweepLog(folder).read_on().trials[0]
    assert (trial.values, trial.state, trial.value) == ({2: 0.25}, "Succeeded", 0.25)


@pytest.mark.parametrize("cut", [0, 30])
def test_a_damaged_record_that_may_have_held_more_than_points_is_not_left_out(
    folder: RunStore, cut: int
) -> None:
    log = SweepLog(folder)
    for record in (begun(), asked(0), Reports((report(0, 1, 0.5),))):
        assert log.append(record)
    folder.store.put(folder.key("log/000000002.json"), b"")
    data = folder.store.get(folder.key("log/000000003.json"))
    folder.store.put(folder.key("log/000000003.json"), data[:cut])
    for position in (2, 3, 4):
        with pytest.raises(SweepLogDamaged) as refused:
            SweepLog(folder).leave_out(position)
        assert str(refused.value) == (
            f"{folder.uri}/log/00000000{position}.json: the rest of it does not show that it "
            "held only points of curves, so it is not left out. Put it back from a copy or an "
            "older version of it; or save the earlier results with `trainrun sweep export "
            "--before-damage`, and start again with another spec.storage.sweepName"
        )
    with pytest.raises(SweepLogDamaged) as refused:
        SweepLog(folder).leave_out(1)
    assert str(refused.value) == (
        f"{folder.uri}/log/000000001.json can be read, so it stays. Give the number of the "
        "record that `trainrun sweep trials` names as damaged, if it names one"
    )


def test_what_stands_before_a_damaged_record_can_be_saved(folder: RunStore) -> None:
    for record in (begun(), asked(0), told(0), asked(1), told(1)):
        log = SweepLog(folder)
        log.read_on()
        assert log.append(record)
    whole = SweepLog(folder)
    assert whole.read_before_damage() is None
    assert whole.view == SweepLog(folder).read_on()

    folder.delete(["log/000000004.json"])
    log = SweepLog(folder)
    damage = log.read_before_damage()

    assert "log/000000004.json: it is missing, but record 5 exists" in str(damage)
    assert (log.view.position, log.view.asked, log.view.count("Succeeded")) == (3, 1, 1)


def test_a_search_whose_folder_was_deleted_meanwhile_does_not_end_with_success(
    folder: RunStore,
) -> None:
    """The search ended with success, and left a log without a beginning."""
    log = SweepLog(folder)
    log.settle(Targets(session=begun(), asked=1), a_search())
    folder.delete(["log/000000001.json", "log/000000002.json"])
    log.settle(Targets(session=begun()), a_search(), stored=(report(0, 1, 0.5),))

    end = End("Succeeded", "TargetReached", "reached")
    with pytest.raises(SweepLogDamaged, match=r"001\.json: it existed, and was deleted\. The log"):
        log.settle(Targets(session=begun(), end=end), a_search())

    assert [it.key for it in folder.objects("log/")] == ["log/000000003.json"]


def test_a_search_whose_newest_record_was_taken_away_does_not_end_with_success(
    folder: RunStore,
) -> None:
    log = SweepLog(folder)
    log.settle(Targets(session=begun(), asked=1), a_search())
    folder.delete(["log/000000002.json"])

    with pytest.raises(SweepLogDamaged, match=r"002\.json: it existed, and was deleted\. The log"):
        log.settle(Targets(session=begun(), end=End("Succeeded", "X", "done")), a_search())


def test_trials_of_a_log_that_was_deleted_are_not_given_to_a_new_one(folder: RunStore) -> None:
    """Each new trial got the checkpoint, and the value, of the old one with its number, which had
    other parameters."""
    folder.write_once("trials/00000/run.json", LogEntry(begun()))

    with pytest.raises(SweepLogDamaged, match="it is missing, but trials/00000/ exists"):
        SweepLog(folder).settle(Targets(session=begun()), a_search())

    assert folder.objects("log/") == []


def test_a_log_that_is_begun_between_two_looks_is_no_log_that_was_deleted(
    folder: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunStore.objects

    def late(self: RunStore, prefix: str) -> list[ObjectInfo]:
        found = whole(self, prefix)
        if prefix == "log/":
            self.write_once("log/000000001.json", LogEntry(begun()))
            self.write_once("trials/00000/run.json", LogEntry(begun()))
        return found

    monkeypatch.setattr(RunStore, "objects", late)

    assert SweepLog(folder).read_on().position == 1


@pytest.mark.case("sweeps", "The newest records of a sweep's log are lost")
@pytest.mark.parametrize("claims", [0, 2])
def test_a_trial_whose_number_a_lost_record_had_given_away_gets_a_folder_never_used(
    store: ObjectStore, claims: int
) -> None:
    """The new trial found the old one's folder: it succeeded with its value, and never ran."""
    folder = RunStore(store, "lr-search")
    log = SweepLog(folder)
    log.settle(Targets(session=begun(), asked=1), a_search())
    folder.write_once("trials/00001/run.json", LogEntry(begun()))
    for claim in range(claims):
        folder.write_once(f"trials/00001/owners/00000{claim}.json", LogEntry(begun()))
        folder.overwrite(f"trials/00001/owners/00000{claim}.beat", LogEntry(begun()))

    view = log.settle(Targets(session=begun(), asked=3), a_search())

    # With 2 claims there may have been 2 openings, each with a run of its own.
    first = max(1, claims) + 1
    assert [it.first for it in view.trials.values()] == [1, first, 1]
    folder.write_once(f"trials/{folder_name(view.trials[1])}/run.json", LogEntry(begun()))
    folder.delete([f"log/00000000{position}.json" for position in (3, 4)])
    view = SweepLog(folder).settle(Targets(session=begun(), asked=2), a_search())
    assert view.trials[1].first == first + 1


def test_who_loses_the_race_for_a_number_takes_the_winners_folder(folder: RunStore) -> None:
    winner, loser = SweepLog(folder), SweepLog(folder)
    for log in (winner, loser):
        log.settle(Targets(session=begun()), a_search())
    assert winner.append(asked(0))
    folder.write_once("trials/00000/run.json", LogEntry(begun()))

    assert not loser.append(asked(0))
    assert loser.read_on().trials[0].first == 1


def test_a_store_that_is_away_changes_nothing_of_what_is_known(folder: RunStore) -> None:
    log = SweepLog(folder)
    before = log.settle(Targets(session=begun(), asked=1), a_search())
    root = Path(folder.store.root)  # type: ignore[attr-defined]
    root.rename(root.with_name("unmounted"))

    with pytest.raises(StoreUnavailable, match="is the volume mounted"):
        log.settle(Targets(session=begun(), asked=3), a_search())

    assert log.view == before
    root.with_name("unmounted").rename(root)
    assert log.settle(Targets(session=begun(), asked=3), a_search()).asked == 3


def test_a_clerk_of_an_old_session_meets_the_newer_one_before_it_can_write(
    folder: RunStore,
) -> None:
    old, new = SweepLog(folder), SweepLog(folder)
    old.settle(Targets(session=begun()), a_search())
    new.settle(Targets(session=begun(uid="new"), after=1), a_search())

    view = old.settle(replace(Targets(session=begun()), asked=3), a_search())

    assert (view.asked, len(view.sessions)) == (0, 2)
