"""Tenants of a cluster: a namespace each, a service account that may read it, and its token."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.api.spec_table import BASE
from tests.cli.viewing.browser import Browser
from tests.kube.patching import merged
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cli.page import serving
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.storages import BoundStorage, BoundStorages
from trainrun_operator.cli.viewing.token_access import RIGHTS, ClusterToken
from trainrun_operator.worlds.kubernetes.access_reviews import TokenReaders, review
from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trainrun_operator.cli.viewing.access import DataKind
    from trainrun_operator.cli.viewing.server import PageServer
    from trainrun_operator.kube.api import KubeApi

ALL: tuple[DataKind, ...] = ("trainruns", "trainsweeps", "pods", "pods/log")
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


@dataclass(frozen=True, kw_only=True)
class Tenant:
    api: KubeApi
    namespace: str
    token: str

    async def create_run(self, name: str, **spec: Any) -> None:
        document = merged(BASE, {"metadata": {"name": name}, "spec": spec})
        await self.api.post(TRAINRUN.path(self.namespace), document)

    async def leave(self) -> None:
        """Its account is deleted, and its token with it."""
        await self.api.delete(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/reader")


async def a_tenant(api: KubeApi, kinds: tuple[DataKind, ...] = ALL) -> Tenant:
    """One who may read these kinds of data in a fresh namespace."""
    namespace = f"team-{secrets.token_hex(4)}"
    await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.post(accounts, {"metadata": {"name": "reader"}})
    rules = [
        {"apiGroups": [right.group], "resources": [str(right).split()[1]], "verbs": [right.verb]}
        for right in map(RIGHTS.__getitem__, kinds)
    ]
    role = {"metadata": {"name": "reader"}, "rules": rules}
    await api.post(f"{RBAC}/{namespace}/roles", role)
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }
    await api.post(f"{RBAC}/{namespace}/rolebindings", binding)
    made = await api.post(f"{accounts}/reader/token", {"spec": {"expirationSeconds": 3600}})
    user = f"system:serviceaccount:{namespace}:reader"

    spec = {"user": user, "resourceAttributes": RIGHTS[kinds[-1]].within(namespace)}
    async with asyncio.timeout(60):
        while not await review(api, "subjectaccessreviews", spec):
            await asyncio.sleep(0.05)  # until the server has learned of the role
    return Tenant(api=api, namespace=namespace, token=made["status"]["token"])


@asynccontextmanager
async def cluster_page(
    bound: Mapping[str, BoundStorage] | None = None, **access: Any
) -> AsyncIterator[PageServer]:
    """The page as the chart deploys it, with the rights of the administrator."""
    async with TokenReaders.connected() as readers:
        catalog = RunCatalog(
            storages=tuple(bound or ()),
            access=BoundStorages(bound or {}),
            watch=await UserWatch.of_cluster(()),
        )
        # 127.0.0.1: what every host may reach is nothing for a test.
        token = ClusterToken(readers=readers, host="127.0.0.1", **access)
        async with serving(catalog, access=token) as server:
            yield server


@asynccontextmanager
async def reading(server: PageServer, token: str) -> AsyncIterator[Browser]:
    """Somebody with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield Browser(server, session)
