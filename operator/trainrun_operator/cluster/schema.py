"""Whether the CRD in the cluster keeps what this operator remembers.

Layer: cluster. The CRD of version 0.1.0 takes unknown fields out of a status without a word, and
with them the operator's memory: an operator that wrote under it would forget a failure. So an
operator does not lead before the newer CRD is there, however its installation was ordered. Goes
with `trainrun_operator.api.run.former`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.api.base import GROUP, VERSION
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import INTERNAL
from trainrun_operator.kube.errors import Forbidden

if TYPE_CHECKING:
    from trainrun_operator.kube.api import KubeApi

PATH = f"/openapi/v3/apis/{GROUP}/{VERSION}"
"""What the API server tells everybody who has an account about its kinds."""


async def schema_trouble(api: KubeApi) -> str:
    """What is wrong with the CRD, and what to do; empty when nothing is. Raises KubeError."""
    try:
        document = await api.get(PATH)
    except Forbidden:
        return ""  # a cluster that hides its schemas: nobody can say, and the order is documented
    schemas = document.get("components", {}).get("schemas", {})
    known = schemas.get(f"dev.trainrun.{VERSION}.{TRAINRUN.kind}", {}).get("properties", {})
    if INTERNAL in known.get("status", {}).get("properties", {}):
        return ""
    return (
        f"the CRD {TRAINRUN.name} is older than this operator and would drop status.{INTERNAL}; "
        "apply the newer one: kubectl apply --server-side --force-conflicts -f crds/"
    )
