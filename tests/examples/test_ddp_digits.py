from __future__ import annotations

from pathlib import Path

from trainrun_operator.api.loading import load_trainrun

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp_digits"


def test_its_file_is_a_valid_trainrun() -> None:
    path = EXAMPLE / "trainrun.yaml"
    run = load_trainrun(path.read_text(), source=str(path))
    assert run.spec.workers.replicas == 4
    assert run.spec.failure_policy.max_failures == 3
