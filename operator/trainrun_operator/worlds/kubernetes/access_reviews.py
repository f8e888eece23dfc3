"""Asks the API server whose a token is, and what an account may do.

Layer: worlds/kubernetes. Reviews are created, but nothing of them is stored. Invariants: no answer
about a token counts for longer than FRESH, and without an answer nothing is allowed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from trainrun.errors import TrainRunError
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.raw import mapping

API = "/apis/authorization.k8s.io/v1"
TIMEOUT = 10.0
"""Seconds for each question."""
FRESH = 40.0
"""Seconds for which answers count. The API server itself remembers a token for ten, and one that
was revoked must end within 60."""
REFUSED = 5.0
"""Seconds until a refused token is reviewed again."""
REVIEWS = 8
"""Reviews at once about tokens that were accepted before."""
STRANGERS = 2
"""Reviews at once of other tokens: whoever makes them up delays no reader."""
MOST_STRANGERS = 50
"""Such reviews that wait, or are made; more are refused."""
MOST = 2000
"""Tokens remembered of those accepted, and of those refused."""

V = TypeVar("V")

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReader:
    """The owner of a token."""

    user: Mapping[str, object]
    """User, uid, groups and extra, as a SubjectAccessReview names them."""
    reviewed: float
    """When, by `time.monotonic`."""
    rights: dict[tuple[Right, str], bool] = field(default_factory=dict)
    """Those that were asked for, by namespace; empty: in all."""

    @property
    def is_fresh(self) -> bool:
        """The answers about it still count."""
        return time.monotonic() - self.reviewed < FRESH


class TooManyTokens(TrainRunError):
    """So many unknown tokens wait for their review that another one is not reviewed."""


@dataclass(slots=True)
class TokenReaders:
    """The owners of all tokens that were seen lately."""

    _api: KubeApi
    _known: dict[bytes, TokenReader] = field(default_factory=dict)
    """By digests of their tokens, in the order of their reviews."""
    _refused: dict[bytes, float] = field(default_factory=dict)
    """When by digests of tokens that are not valid, in the same order."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REVIEWS))
    _strangers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STRANGERS))
    _waiting: int = 0
    """Strangers, those whose review is being made among them."""

    @classmethod
    @asynccontextmanager
    async def connected(cls) -> AsyncGenerator[TokenReaders]:
        """Those of the cluster that we run in. Raises NoCluster."""
        async with KubeApi.connected() as api:
            yield cls(api)

    async def of(self, token: str) -> TokenReader | None:
        """The owner of the token; None: it is not valid. Raises KubeError, TooManyTokens."""
        digest = hashlib.sha256(token.encode()).digest()
        known, began = self._known.get(digest), time.monotonic()
        if known is not None and known.is_fresh:
            return known
        if began < self._refused.get(digest, -REFUSED) + REFUSED:
            return None
        async with self._turns if known is not None else self._turn_of_a_stranger():
            user = await self._owner(token)
        self._known.pop(digest, None)
        self._refused.pop(digest, None)
        if not user:
            _keep(self._refused, digest, began)
            return None
        known = TokenReader(user=user, reviewed=began)
        _keep(self._known, digest, known)
        return known

    @asynccontextmanager
    async def _turn_of_a_stranger(self) -> AsyncGenerator[None]:
        if self._waiting >= MOST_STRANGERS:
            raise TooManyTokens("too many unknown tokens are being looked at; try again")
        self._waiting += 1
        try:
            async with self._strangers:
                yield
        finally:
            self._waiting -= 1

    async def allowed(
        self, reader: TokenReader, right: Right, namespaces: Collection[str]
    ) -> frozenset[str]:
        """Those of the namespaces in which the reader has the right. Raises KubeError."""
        if await self._may(reader, right, ""):
            return frozenset(namespaces)
        names = sorted(name for name in namespaces if name)
        may = await asyncio.gather(*(self._may(reader, right, name) for name in names))
        return frozenset(name for name, can in zip(names, may, strict=True) if can)

    async def _may(self, reader: TokenReader, right: Right, namespace: str) -> bool:
        known = reader.rights.get((right, namespace))
        if known is None:
            spec = {**reader.user, "resourceAttributes": right.within(namespace)}
            async with self._turns:
                known = await review(self._api, "subjectaccessreviews", spec)
            reader.rights[right, namespace] = known
        return known

    async def _owner(self, token: str) -> dict[str, object]:
        body = {"spec": {"token": token}}
        status = mapping(await self._api.post(_TOKEN_REVIEWS, body, timeout=TIMEOUT), "status")
        user = mapping(status, "user")
        if status.get("authenticated") is not True or not user.get("username"):
            return {}
        return {
            "user": user["username"],
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
        }


def _keep(table: dict[bytes, V], digest: bytes, value: V) -> None:
    """As the newest of MOST."""
    table[digest] = value
    if len(table) > MOST:
        del table[next(iter(table))]
