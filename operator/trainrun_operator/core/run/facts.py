"""What an attempt is started with, for people: `explain` tells what has changed between two.

Layer: core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.run.causes import BUDGETS, limits_of

if TYPE_CHECKING:
    from trainrun_operator.api.run.resource import TrainRun
    from trainrun_operator.api.run.spec import WorkersSpec

MAX_FACT = 120
"""Characters of what is told of the spec."""


def facts_of(run: TrainRun, template: str) -> tuple[tuple[str, str], ...]:
    """Names as in the spec; a template that differs in more than its image shows in its hash."""
    spec = run.spec
    facts = {
        "image": _image(spec.workers),
        "template": template,
        "replicas": str(spec.workers.replicas),
        "keep": str(spec.checkpoint.keep),
    }
    limits = limits_of(spec.failure_policy)
    facts |= {BUDGETS[name].field: str(limit) for name, limit in limits.items()}
    return tuple((name, value[:MAX_FACT]) for name, value in facts.items() if value)


def _image(workers: WorkersSpec) -> str:
    """Of the container that trains."""
    training = workers.template.spec.training
    return str(training.model_dump(mode="json", by_alias=True).get("image") or "")
