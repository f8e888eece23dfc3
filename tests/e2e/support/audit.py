"""What was asked of the API server, as its audit log tells it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.cluster import Cluster


def refused_creations(cluster: Cluster, namespace: str, *, resource: str) -> list[float]:
    """When creations in a namespace were answered 403, in seconds, in their order."""
    moments = []
    with cluster.audit_log.open() as log:
        for line in log:
            # Most lines are of others; what looks right is read.
            if f'"namespace":"{namespace}"' not in line or '"verb":"create"' not in line:
                continue
            entry = json.loads(line)
            if (
                entry["objectRef"].get("resource") == resource
                and not entry["objectRef"].get("subresource")
                and entry["responseStatus"]["code"] == 403
            ):
                moments.append(datetime.fromisoformat(entry["stageTimestamp"]).timestamp())
    return sorted(moments)
