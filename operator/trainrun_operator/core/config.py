"""The part of a TrainRun's spec that the core decides by, in the core's own types.

Layer: core. Made from the spec by `trainrun_operator.core.render.config_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What decide() needs of a run's spec and identity."""

    name: str
    uid: str
    replicas: int
    processes_per_worker: int = 1
    template_hash: str
    checkpoints_uri: str
    """`<uri>/<runName>/checkpoints`, for display."""
    suspend: bool = False
    on_existing: Literal["Resume", "Fail"] = "Resume"
    max_failures: int = 0
    """-1: no limit."""
    max_preemptions: int | None = None
    """None: preemptions count against max_failures; -1: no limit."""
    backoff_initial: timedelta = timedelta(seconds=1)
    backoff_factor: float = 2.0
    backoff_max: timedelta = timedelta(seconds=60)
    heartbeat_timeout: timedelta = timedelta(seconds=30)
    start_timeout: timedelta = timedelta(minutes=5)
    placement_timeout: timedelta = timedelta(minutes=10)
    flush_timeout: timedelta = timedelta(seconds=30)
    max_pending: int = 2
    active_deadline: timedelta | None = None
    ttl_after_finished: timedelta | None = None
    retain_failed_workers: int = 1

    @property
    def world_size(self) -> int:
        """Processes over all workers."""
        return self.replicas * self.processes_per_worker
