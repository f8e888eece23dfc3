"""What everybody tries first: apply a run, see it succeed."""

from __future__ import annotations

import pytest

from tests.e2e.support.bed import PYTHON_IMAGE, WORKER_IMAGE, Bed
from tests.e2e.support.cluster_run import undisturbed
from tests.support.levels import later_rare

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    "image",
    later_rare([PYTHON_IMAGE, WORKER_IMAGE], by="tests/e2e/test_readme.py"),
    ids=["any-image-with-python", "worker-image"],
)
def test_three_workers_train_to_their_end(bed: Bed, image: str) -> None:
    run = bed.run(image=image, args=["--steps", 10])

    status = run.wait_for_phase("Succeeded")

    assert run.chains(10) == undisturbed(ranks=3, steps=10)
    assert status["failures"]["text"] == "0/3"
    assert run.incidents == []
    assert run.reasons()[0] == "Accepted"
    run.ends_with("Succeeded")
    assert run.reasons().count("Started") == 1
    assert run.condition("Complete")["status"] == "True"
    assert "Succeeded" in bed.kubectl("get", "trainruns")
