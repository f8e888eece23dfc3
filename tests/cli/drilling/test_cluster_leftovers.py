"""What a drill leaves in a cluster that is killed itself, and which of it the next one removes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.drills import a_file
from tests.kube.patching import merged
from trainrun.checkpoint.ownership import BeatWatch, acquire, enter, release
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.errors import StoreUnavailable
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.cli.drilling import cluster_environment as ground_module
from trainrun_operator.cli.drilling.cluster_environment import (
    ClusterEnvironment,
    drill_document,
    is_left_behind,
)
from trainrun_operator.cli.preparation import load_file
from trainrun_operator.kube.errors import Forbidden
from trainrun_operator.worlds.kubernetes.own_run import UsersCluster
from trainrun_operator.worlds.kubernetes.run_object import run_version

NAME = "llama-drill-ab12-2"
PATH = f"/apis/trainrun.dev/v1alpha1/namespaces/default/trainruns/{NAME}"


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def ended(kind: str = "Failed", *, hours: float = 2) -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": "DeadlineExceeded"}
    told = {"conditions": [condition | {"lastTransitionTime": hours_ago(hours)}]}
    return told if kind == "Suspended" else told | {"completionTime": hours_ago(hours)}


@dataclass
class Api:
    """Holds the TrainRuns of a namespace, and allows everything but what it refuses."""

    runs: list[dict[str, Any]]
    refuses_lists: bool = False
    deleted: list[tuple[str, str]] = field(default_factory=list)
    """Path, and the uid that it had to have."""

    async def post(self, _path: str, _body: Mapping[str, Any], *, timeout: float) -> dict[str, Any]:
        return {"status": {"allowed": True}}

    async def get(self, path: str, *, params: Mapping[str, str]) -> dict[str, Any]:
        assert path == PATH.removesuffix(f"/{NAME}")
        if self.refuses_lists:
            raise Forbidden("list trainruns: forbidden")
        key, _, value = params["labelSelector"].partition("=")
        return {"items": [it for it in self.runs if it["metadata"]["labels"].get(key) == value]}

    async def delete(self, path: str, *, body: Mapping[str, Any]) -> dict[str, Any]:
        self.deleted.append((path, body["preconditions"]["uid"]))
        return {}


@dataclass
class Place:
    """The user's run, what a drill of it has left, and a drill that begins."""

    run: TrainRun
    folder: RunStore
    said: list[str] = field(default_factory=list)

    def left(self, *changes: dict[str, Any], status: dict[str, Any] | None = None) -> Any:
        """The TrainRun that a drill has made and not removed."""
        document = drill_document(self.run, name=NAME, namespace="default", faults=1, seconds=60)
        document = merged(document, {"metadata": {"uid": "u-1", "resourceVersion": "7"}})
        for change in changes:
            document = merged(document, change)
        return document | {"status": ended() if status is None else status}

    def there(self) -> bool:
        return bool(self.folder.objects(""))

    def begin_drill(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        @asynccontextmanager
        async def cluster() -> AsyncIterator[UsersCluster]:
            yield UsersCluster(api=api)  # type: ignore[arg-type]

        monkeypatch.setattr(ground_module, "users_cluster", cluster)
        ClusterEnvironment(run=self.run, say=self.said.append).check()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    run = load_file(a_file(tmp_path))
    (tmp_path / "storage").mkdir()
    folder = RunStore(open_store(run.spec.storage.uri), NAME)
    acquire(folder, uid="u-1", fail_on_existing=True, watch=BeatWatch())
    folder.store.put(folder.key("checkpoints/step-000000010-attempt-1/manifest.json"), b"{}")
    return Place(run=run, folder=folder)


@pytest.mark.parametrize("kind", ["Failed", "Complete", "Suspended"])
def test_the_next_drill_of_a_run_removes_what_one_that_was_killed_has_left(
    kind: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api([place.left(status=ended(kind))])
    neighbour = RunStore(place.folder.store, "llama")
    acquire(neighbour, uid="u-0", fail_on_existing=True, watch=BeatWatch())
    place.begin_drill(api, monkeypatch)
    assert not place.there()
    assert neighbour.objects("")
    assert api.deleted == [(PATH, "u-1")]
    uri = place.folder.uri
    assert place.said == [f"removed {uri} and its run, left by a drill that was killed"]


def test_a_folder_that_somebody_has_taken_over_since_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(place.folder, uid="u-1")
    acquire(place.folder, uid="u-2", fail_on_existing=False, watch=BeatWatch())
    api = Api([place.left()])
    place.begin_drill(api, monkeypatch)
    assert place.there()
    assert (api.deleted, place.said) == ([], [])


def test_a_folder_in_which_somebody_has_begun_anew_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(place.folder, uid="u-2", fresh=True)
    api = Api([place.left()])
    place.begin_drill(api, monkeypatch)
    assert place.there()
    assert (api.deleted, place.said) == ([], [])


def test_a_run_whose_folder_is_gone_already_is_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.folder.delete([item.key for item in place.folder.objects("")])
    api = Api([place.left()])
    place.begin_drill(api, monkeypatch)
    assert api.deleted == [(PATH, "u-1")]


def test_the_run_stays_as_long_as_its_folder(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone says whose folder that is."""

    def away(_ground: ClusterEnvironment, name: str) -> None:
        if name == NAME:
            raise StoreUnavailable("the store is away")

    monkeypatch.setattr(ClusterEnvironment, "_empty", away)
    api = Api([place.left()])
    place.begin_drill(api, monkeypatch)
    assert api.deleted == []
    assert place.said == ["leftovers of killed drills may still be there: the store is away"]


def test_trouble_with_it_is_told_and_the_drill_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.begin_drill(Api([place.left()], refuses_lists=True), monkeypatch)
    assert place.there()
    assert place.said == [
        "leftovers of killed drills may still be there: list trainruns: forbidden"
    ]


def test_a_run_that_cannot_be_read_hides_no_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api([place.left({"spec": {"workers": "tomorrow"}}), place.left()])
    place.begin_drill(api, monkeypatch)
    assert api.deleted == [(PATH, "u-1")]


NOT_LEFT: dict[str, tuple[dict[str, Any], Any]] = {
    "it works still": ({}, {"phase": "Running"}),
    "its drill may be reading it": ({}, lambda: ended(hours=0.8)),
    "its drill has just suspended it": ({}, lambda: ended("Suspended", hours=0.8)),
    "it goes on after it was suspended": (
        {},
        {"conditions": [ended("Suspended")["conditions"][0] | {"status": "False"}]},
    ),
    "a drill of another run": ({"metadata": {"labels": {"trainrun.dev/drill": "bert"}}}, None),
    "no drill gives such a name": (
        {"metadata": {"name": "llama-2"}, "spec": {"storage": {"runName": "llama-2"}}},
        None,
    ),
    "another folder": ({"spec": {"storage": {"runName": "llama"}}}, None),
    "a folder that was there before": ({"spec": {"storage": {"onExisting": "Resume"}}}, None),
    "another storage": ({"spec": {"storage": {"uri": "file:///elsewhere"}}}, None),
    "another server": ({"spec": {"storage": {"endpointURL": "http://elsewhere"}}}, None),
}


@pytest.mark.parametrize("why", NOT_LEFT)
def test_a_run_that_no_drill_has_provably_left_is_not_touched(why: str, place: Place) -> None:
    change, status = NOT_LEFT[why]
    status = status() if callable(status) else status  # an hour ends while all tests run
    assert is_left_behind(run_version(place.left()), of=place.run)
    version = run_version(place.left(change, status=status))
    assert not is_left_behind(version, of=place.run)
