"""A TrainRun's newest version, as the watch and the answers to our own writes bring it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.status import json_object
from trainrun_operator.worlds.kubernetes.run_object import RunObject, RunVersion, managed_version

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


def written(run: RunObject) -> RunVersion:
    found = run.current.written()
    assert found is not None, "it is small enough to be kept"
    return found


def run_of(run: RunObject) -> TrainRun:
    return written(run).run


@pytest.fixture
def run() -> RunObject:
    return RunObject(managed_version(raw(1)))


def test_an_edit_of_the_spec_is_seen(run: RunObject) -> None:
    assert run.learn(suspended(2))
    assert run.current.config.suspend
    assert run_of(run).spec.suspend


def test_a_new_label_is_seen(run: RunObject) -> None:
    assert run.learn(with_metadata(2, labels={"team": "vision"}))
    assert run_of(run).metadata.labels == {"team": "vision"}


def test_a_spec_that_cannot_be_read_is_refused_and_the_one_before_stays(run: RunObject) -> None:
    before, begun = run.current, replace(run.current.status, attempt=3)
    odd = {"storage": {"uri": "file:///runs"}}
    assert run.learn(raw(2, spec=odd, status=json_object(begun)))
    assert "spec.workers: is missing" in run.invalid
    assert (run.current.trimmed, run.current.config) == (before.trimmed, before.config)
    assert run.current.status == begun

    assert run.learn(suspended(3))
    assert (run.refusal, run.invalid, run.current.config.suspend) == (None, "", True)


def test_under_a_spec_that_cannot_be_read_the_versions_go_on(run: RunObject) -> None:
    """Every write was refused with a conflict from then on, and nobody led the run."""
    odd = {"storage": {"uri": "file:///runs"}}
    begun = replace(run.current.status, attempt=3)
    for number, is_news in ((2, True), (3, False)):
        run.written = begun
        assert run.learn(raw(number, spec=odd, status=json_object(begun))) is is_news
        assert run.current.number == number


def test_a_status_that_cannot_be_read_is_refused_and_the_version_before_stays(
    run: RunObject,
) -> None:
    """What a newer operator remembers must not be written over."""
    newer = {"internal": {"ending": {"attempt": 1, "kind": "Vote", "time": "x"}}}
    for spec in (raw(2)["spec"], {}):
        with pytest.raises(InvalidSpec, match="the status cannot be read; a newer operator may"):
            run.learn(raw(2, spec=spec, status=newer))
    assert run.current.number == 1


def test_a_field_that_the_crd_of_the_next_version_fills_in_hides_no_run(run: RunObject) -> None:
    """From the moment of the new CRD on the operator of before saw no run any more."""
    spec = raw(2)["spec"]
    spec["patience"] = "5m"
    spec["storage"]["layout"] = {"name": "flat"}
    spec["workers"]["template"]["spec"]["containers"][0]["own"] = {"kept": True}

    run.learn(raw(2, spec=spec))

    assert run.refusal is None
    assert written(run).raw["spec"]["patience"] == "5m"
    assert run_of(run).spec.workers.template.as_dict() == spec["workers"]["template"]


def test_of_a_write_of_the_status_only_the_status_is_read(run: RunObject) -> None:
    """With 2,000 agents reading all of it again was a twentieth of what the operator used."""
    before = run.current
    written = replace(before.status, attempt=3)
    changed = with_metadata(2, managedFields=[{"subresource": "status"}])

    assert run.learn({**changed, "status": json_object(written)})

    assert run.current.status.attempt == 3
    assert run.current.number == 2
    assert run.current.trimmed is before.trimmed
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
