"""Workers whose pods were made from a spec that has been edited since.

Layer: core. Read from what the pods themselves say. Invariant: what is not known of a worker makes
it no outdated one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.api.run.launching import TEMPLATE

if TYPE_CHECKING:
    from trainrun_operator.core.run.config import RunConfig
    from trainrun_operator.core.run.observation import WorkerFact


def outdated(worker: WorkerFact, config: RunConfig) -> str:
    """The field of the spec that has changed since the worker was made; "" where none has."""
    if worker.template_hash != config.template_hash:
        return TEMPLATE
    made, now = worker.storage, config.storage
    if made is None:
        return ""
    if made.endpoint_url != now.endpoint_url:
        return "storage.endpointURL"
    if made.region != now.region:
        return "storage.region"
    if made.credentials != now.credentials:
        return "storage.credentialsSecretRef"
    return ""
