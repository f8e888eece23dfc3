"""From a TrainRun to what every one of its agents is told, wherever the workers live.

Layer: core. Worlds fill in who and where each agent is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.contract.agent_config import AgentConfig

if TYPE_CHECKING:
    from trainrun_operator.api.run.resource import TrainRun
    from trainrun_operator.core.run.config import RunConfig


def agent_config(run: TrainRun, config: RunConfig) -> AgentConfig:
    """What is the same for all workers of the run; the rest is left empty."""
    warm = run.spec.workers.warm_start
    return AgentConfig(
        run=config.name,
        run_uid=config.uid,
        namespace=run.metadata.namespace,
        slot=0,
        worker="",
        operator_url="",
        directory="",
        cache="",
        storage=config.storage,
        initial_from=run.spec.checkpoint.initial_from,
        workers=config.replicas,
        processes_per_worker=config.processes_per_worker,
        preload=warm.preload if warm is not None else (),
        heartbeat_timeout=config.heartbeat_timeout.total_seconds(),
        flush_timeout=config.flush_timeout.total_seconds(),
        max_pending=config.max_pending,
        keep=config.keep,
        score_metric=config.score_metric,
        score_order=config.score_order,
        on_notice=config.on_notice,
    )
