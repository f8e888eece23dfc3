"""From a TrainRun to what the core decides by: its configuration and the hash of its pod template.

Layer: core.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from trainrun_operator.core.config import RunConfig

if TYPE_CHECKING:
    from trainrun_operator.api.resource import TrainRun
    from trainrun_operator.api.spec import Workers

HASH_DIGITS = 12
"""Hexadecimal digits of a template hash: it also becomes a label value (at most 63 characters)."""


def config_of(run: TrainRun) -> RunConfig:
    """The part of the spec, and of the identity, that decisions are based on."""
    spec = run.spec
    policy, health = spec.failure_policy, spec.health
    return RunConfig(
        name=run.metadata.name,
        uid=run.metadata.uid,
        replicas=spec.workers.replicas,
        processes_per_worker=spec.workers.processes_per_worker,
        template_hash=template_hash(spec.workers),
        checkpoints_uri=f"{spec.storage.uri.rstrip('/')}/{run.run_name}/checkpoints",
        suspend=spec.suspend,
        on_existing=spec.storage.on_existing,
        max_failures=policy.max_failures,
        max_preemptions=policy.max_preemptions,
        backoff_initial=policy.backoff.initial.timedelta,
        backoff_factor=policy.backoff.factor,
        backoff_max=policy.backoff.max.timedelta,
        heartbeat_timeout=health.heartbeat_timeout.timedelta,
        start_timeout=health.start_timeout.timedelta,
        placement_timeout=health.placement_timeout.timedelta,
        flush_timeout=spec.checkpoint.flush_timeout.timedelta,
        max_pending=spec.checkpoint.max_pending,
        active_deadline=spec.active_deadline.timedelta if spec.active_deadline else None,
        ttl_after_finished=(
            spec.ttl_after_finished.timedelta if spec.ttl_after_finished is not None else None
        ),
        retain_failed_workers=spec.retain_failed_workers,
    )


def template_hash(workers: Workers) -> str:
    """Differs whenever the pods would differ: a gang never mixes two of them."""
    template = workers.template.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if workers.agent == "InImage":  # the default leaves no trace: hashes outlive our versions
        template["agent"] = workers.agent
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]
