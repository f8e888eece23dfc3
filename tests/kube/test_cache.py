"""What a cache believes when news overtake each other."""

from __future__ import annotations

import pytest

from tests.kube.fake_api import Raw, thing
from trainrun_operator.kube.cache import REMEMBERED_DELETIONS, Cache, identity

Change = tuple[str | None, str | None]


class Listener:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.cache: Cache[tuple[str, str]] = Cache(
            project=lambda raw: (
                None if "none_of_ours" in raw else (raw["metadata"]["name"], raw.get("color", ""))
            ),
            key=lambda item: item[0],
            on_change=lambda old, new: self.changes.append((old and old[1], new and new[1])),
        )

    def listed(self, *things: Raw, version: int) -> None:
        versions = dict(identity(raw) for raw in things)
        self.cache.listed(versions, version=version)
        for raw in things:
            self.cache.put(raw)

    def told(self) -> list[Change]:
        changes, self.changes = self.changes, []
        return changes

    @property
    def colors(self) -> dict[str, str]:
        return {name: color for name, (_, color) in self.cache.items.items()}


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_what_does_not_matter_is_not_told(listener: Listener) -> None:
    listener.cache.put(thing("a", 1, color="red"))
    listener.cache.put(thing("a", 2, color="red", heartbeat=17))
    listener.cache.put(thing("a", 3, color="blue"))

    assert listener.told() == [(None, "red"), ("red", "blue")]


def test_an_older_version_never_replaces_a_newer_one(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, color="new"))
    listener.cache.put(thing("a", 9, color="old"))

    assert listener.colors == {"a": "new"}


def test_what_an_answer_to_our_own_write_has_told_is_not_read_again(listener: Listener) -> None:
    read: list[Raw] = []

    def project(raw: Raw) -> str:
        read.append(raw)
        return str(raw["metadata"]["name"])

    cache = Cache(project=project, key=lambda item: item, on_change=lambda _old, _new: None)
    assert cache.put(thing("a", 9))
    assert cache.put(thing("a", 9)), "the watch tells of it, too"
    assert cache.put(thing("a", 8))
    assert len(read) == 1


def test_versions_are_compared_as_numbers(listener: Listener) -> None:
    listener.cache.put(thing("a", 9, color="old"))
    listener.cache.put(thing("a", 10, color="new"))

    assert listener.colors == {"a": "new"}


def test_what_a_list_lacks_is_gone(listener: Listener) -> None:
    listener.listed(thing("a", 1, color="red"), thing("b", 2, color="blue"), version=5)
    listener.told()

    listener.listed(thing("b", 2, color="blue"), version=9)

    assert listener.told() == [("red", None)]


def test_what_was_created_after_a_list_began_survives_it(listener: Listener) -> None:
    listener.cache.put(thing("a", 12, color="red"))

    listener.listed(version=11)

    assert listener.colors == {"a": "red"}


def test_a_late_answer_does_not_bring_back_what_was_deleted(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, color="red"))
    listener.cache.remove("uid-a", version=12)
    listener.cache.put(thing("a", 11, color="patched"))

    assert listener.colors == {}
    assert listener.told() == [(None, "red"), ("red", None)]


def test_a_deletion_that_comes_before_the_answer_to_the_creation_holds(listener: Listener) -> None:
    listener.cache.remove("uid-a", version=12)
    listener.cache.put(thing("a", 11, color="red"))

    assert listener.told() == []


def test_what_left_the_selection_may_come_back(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, color="red"))
    listener.cache.remove("uid-a", version=12)
    listener.cache.put(thing("a", 13, color="red"))

    assert listener.told() == [(None, "red"), ("red", None), (None, "red")]


def test_what_is_none_of_ours_any_more_is_gone_and_may_come_back(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, color="red"))
    listener.cache.put(thing("a", 11, none_of_ours=True))
    listener.cache.put(thing("a", 12, color="red"))

    assert listener.told() == [(None, "red"), ("red", None), (None, "red")]


def test_a_late_answer_does_not_bring_back_what_is_none_of_ours_any_more(
    listener: Listener,
) -> None:
    listener.cache.put(thing("a", 10, color="red"))
    listener.cache.put(thing("a", 12, none_of_ours=True))
    listener.cache.put(thing("a", 11, color="late"))

    assert listener.told() == [(None, "red"), ("red", None)]


def test_a_late_version_that_was_none_of_ours_changes_nothing(listener: Listener) -> None:
    listener.cache.put(thing("a", 12, color="red"))
    listener.cache.put(thing("a", 11, none_of_ours=True))

    assert listener.colors == {"a": "red"}


def test_another_object_of_the_same_name_is_told_as_two_changes(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, uid="first", color="red"))
    listener.cache.put(thing("a", 20, uid="second", color="red"))
    listener.cache.remove("first", version=15)
    listener.cache.put(thing("a", 14, uid="first", color="late"))

    assert listener.told() == [(None, "red"), ("red", None), (None, "red")]
    assert listener.colors == {"a": "red"}


def test_late_news_of_who_had_the_name_before_do_not_take_it_back(listener: Listener) -> None:
    listener.cache.put(thing("a", 20, uid="second", color="red"))
    listener.cache.put(thing("a", 10, uid="first", color="late"))

    assert listener.told() == [(None, "red")]


def test_a_list_that_shows_another_object_of_the_same_name_tells_both(listener: Listener) -> None:
    listener.cache.put(thing("a", 10, uid="first", color="red"))
    listener.listed(thing("a", 20, uid="second", color="blue"), version=30)

    assert listener.told() == [(None, "red"), ("red", None), (None, "blue")]


def test_a_restored_backup_is_believed(listener: Listener) -> None:
    listener.listed(thing("a", 900, color="after"), thing("b", 901, color="b"), version=1000)
    listener.cache.remove("uid-b", version=1001)
    listener.told()

    listener.cache.start_over()
    listener.listed(thing("a", 80, color="before"), thing("b", 81, color="b"), version=90)

    assert listener.colors == {"a": "before", "b": "b"}


def test_a_backup_that_was_restored_under_higher_versions_is_believed(listener: Listener) -> None:
    listener.listed(thing("a", 900, color="after"), thing("b", 901, color="b"), version=1000)
    listener.cache.remove("uid-b", version=1001)
    listener.cache.put(thing("c", 1_000_000_100, color="made since"))
    listener.told()

    listener.listed(
        thing("a", 80, color="before"),
        thing("b", 81, color="b"),
        thing("c", 82, color="c"),
        version=1_000_000_090,
    )

    assert listener.colors == {"a": "before", "b": "b", "c": "made since"}


def test_the_memory_of_deletions_is_bounded(listener: Listener) -> None:
    for number in range(REMEMBERED_DELETIONS + 10):
        listener.cache.remove(f"uid-{number}")
    listener.cache.put(thing("0", 5, color="forgotten"))
    listener.cache.put(thing(str(REMEMBERED_DELETIONS), 5, color="remembered"))

    assert listener.colors == {"0": "forgotten"}
