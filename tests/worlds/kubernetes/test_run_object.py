"""A TrainRun's newest version, as the watch and the answers to our own writes bring it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.status_json import json_object
from trainrun_operator.worlds.kubernetes.run_object import RunObject, run_version

Raw = dict[str, Any]


def raw(version: int, **changes: Any) -> Raw:
    """The API server's object; `changes` replace what stands at the top."""
    container = {"name": "worker", "image": "train:1", "command": ["train"]}
    metadata = {"name": "digits", "namespace": "team", "uid": "run-1", "generation": 1}
    return {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "metadata": {**metadata, "resourceVersion": str(version)},
        "spec": {
            "workers": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            "storage": {"uri": "file:///runs"},
        },
        "status": {},
        **changes,
    }


def with_metadata(version: int, **fields: Any) -> Raw:
    found = raw(version)
    return {**found, "metadata": {**found["metadata"], **fields}}


def suspended(version: int) -> Raw:
    found = raw(version)
    return {**found, "spec": {**found["spec"], "suspend": True}}


@pytest.fixture
def run() -> RunObject:
    return RunObject(run_version(raw(1)))


def test_an_older_version_never_replaces_a_newer_one(run: RunObject) -> None:
    assert run.learn(suspended(3))
    assert not run.learn(raw(2))
    assert run.current.config.suspend


def test_an_edit_of_the_spec_is_seen(run: RunObject) -> None:
    assert run.learn(suspended(2))
    assert run.current.config.suspend
    assert run.current.run.spec.suspend


def test_a_new_label_is_seen(run: RunObject) -> None:
    assert run.learn(with_metadata(2, labels={"team": "vision"}))
    assert run.current.run.metadata.labels == {"team": "vision"}


def test_a_spec_that_cannot_be_read_is_refused_and_the_one_before_stays(run: RunObject) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.workers"):
        run.learn(raw(2, spec={"storage": {"uri": "file:///runs"}}))
    assert run.current.config.replicas == 2


def test_of_a_write_of_the_status_only_the_status_is_read(run: RunObject) -> None:
    """With 2,000 agents reading all of it again was a twentieth of what the operator used."""
    before = run.current
    written = replace(before.status, attempt=3)
    changed = with_metadata(2, managedFields=[{"subresource": "status"}])

    assert run.learn({**changed, "status": json_object(written)})

    assert run.current.status.attempt == 3
    assert run.current.raw["metadata"]["resourceVersion"] == "2"
    assert run.current.run is before.run
    assert run.current.config is before.config


def test_seeing_what_we_have_written_is_no_news(run: RunObject) -> None:
    """Each write for display led to a pass more, since the watch is faster than the answer."""
    run.written = replace(run.current.status, attempt=3)
    assert not run.learn({**raw(2), "status": json_object(run.written)})
    assert run.current.status.attempt == 3


def test_a_status_that_somebody_else_has_written_is_news_and_so_is_ours_after_it(
    run: RunObject,
) -> None:
    ours = run.written = replace(run.current.status, attempt=3)
    assert run.learn({**raw(2), "status": json_object(replace(ours, attempt=1))})
    assert run.learn({**raw(3), "status": json_object(ours)})


def test_an_edit_that_comes_with_our_status_is_news(run: RunObject) -> None:
    run.written = replace(run.current.status, attempt=3)
    assert run.learn({**suspended(2), "status": json_object(run.written)})
