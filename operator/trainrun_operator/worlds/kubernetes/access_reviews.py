"""Asks the API server what an account may do.

Layer: worlds/kubernetes. Access reviews are created, but nothing of them is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.raw import mapping

API = "/apis/authorization.k8s.io/v1"
TIMEOUT = 10.0
"""Seconds for each question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A verb on a kind of objects."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        part = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource}{part}"

    def within(self, namespace: str) -> dict[str, str]:
        """The resourceAttributes of a review; an empty namespace: in all."""
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": namespace,
        }


async def missing_rights(api: KubeApi, namespace: str, needed: Sequence[Right]) -> list[Right]:
    """Those that our own account lacks in this namespace. Raises KubeError."""

    async def may(right: Right) -> bool:
        spec = {"resourceAttributes": right.within(namespace)}
        return await review(api, "selfsubjectaccessreviews", spec)

    allowed = await asyncio.gather(*map(may, needed))
    return [right for right, can in zip(needed, allowed, strict=True) if not can]


async def review(api: KubeApi, plural: str, spec: Mapping[str, object]) -> bool:
    """Whether a review of this kind and spec allows it. Raises KubeError."""
    answer = await api.post(f"{API}/{plural}", {"spec": spec}, timeout=TIMEOUT)
    return mapping(answer, "status").get("allowed") is True
