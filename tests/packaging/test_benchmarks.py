"""Benchmarks run seldom: what they hand to the product is valid all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import report
from benchmarks.local_job import run_yaml
from trainrun_operator.api.loading import load_trainrun

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("failures", [-1, 3])
def test_the_run_that_peers_are_compared_with_is_valid(tmp_path: Path, failures: int) -> None:
    """It ended with KeyError: 'storage' before the first trial."""
    text = run_yaml(tmp_path / "script.py", tmp_path, ranks=2, max_failures=failures)

    spec = load_trainrun(text, source="run.yaml").spec
    assert spec.workers.replicas == 2
    assert spec.failure_policy.max_failures == failures
    assert spec.storage.uri == f"file://{tmp_path}/storage"


def test_the_run_that_starts_warm_is_valid(tmp_path: Path) -> None:
    text = run_yaml(tmp_path / "script.py", tmp_path, ranks=2, warm=True)

    warm = load_trainrun(text, source="run.yaml").spec.workers.warm_start
    assert warm is not None
    assert warm.preload == ("torch",)


def test_the_run_that_report_is_measured_in_is_valid(tmp_path: Path) -> None:
    places = {"python": "python", "script": "script.py", "result": "result.json"}
    text = report.RUN.format(folder=tmp_path, **places)

    assert load_trainrun(text, source="run.yaml").spec.workers.replicas >= 1
