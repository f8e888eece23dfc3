"""Leadership: one Lease that one process holds at a time.

Layer: worlds/kubernetes. Invariants: nobody's wall clock is believed: a follower takes the Lease
when it has not seen it change for its whole duration, a leader stops when it could not renew it for
RENEW_DEADLINE, which is shorter by more than any write takes to arrive; a Lease that was lost stays
lost for this process, also if it was only paused.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from trainrun.errors import TrainRunError
from trainrun_operator.worlds.kubernetes.api import KubeApi, Object
from trainrun_operator.worlds.kubernetes.errors import AlreadyExists, Conflict, KubeError, NotFound

DURATION = 10.0
"""Seconds that others leave a Lease alone which is not renewed."""
RENEW_DEADLINE = 6.0
"""Seconds without a renewal after which its holder stops acting."""
RETRY = 1.0
"""Seconds between two looks at somebody else's Lease, and after a renewal that failed."""
RENEW_EVERY = 2.0

_log = logging.getLogger(__name__)


class LeaseLost(TrainRunError):
    """We no longer lead: another process does, or soon will."""


def boot_time() -> float:
    """Seconds since boot. Unlike time.monotonic() it goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """A Lease object, from one contender's point of view."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        on_lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`identity` tells people who leads; `on_lost` is called once, before `keep` raises."""
        self._api = api
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._identity = identity
        self._on_lost = on_lost
        self._clock = clock
        self._claim = ("", "")
        """What tells our tenure from any other, also from that of a process of the same name."""
        self._held: Object | None = None
        """The Lease as we wrote it last; None: it is not ours."""
        self._renewed_at = 0.0
        self._lost = False

    def is_valid(self) -> bool:
        """Whether nobody else can be leading at this moment. Ask before every write."""
        if self._held is None or self._lost:
            return False
        self._lost = self._clock() >= self._renewed_at + RENEW_DEADLINE
        return not self._lost

    async def acquire(self) -> None:
        """Return once we hold it; waits as long as somebody else renews it."""
        seen, seen_at = "", 0.0
        while True:
            pause = RETRY * random.uniform(0.9, 1.1)
            try:
                async with asyncio.timeout(RENEW_DEADLINE):
                    lease = await self._look()
                    version = "" if lease is None else lease["metadata"]["resourceVersion"]
                    if version != seen:
                        seen, seen_at = version, self._clock()
                    if lease is None or self._is_free(lease, self._clock() - seen_at):
                        await self._take(lease)
                        return
            except (Conflict, AlreadyExists):
                _log.debug("another contender was faster")
            except (KubeError, TimeoutError) as error:
                _log.warning("the Lease cannot be taken: %s", _why(error))
            await asyncio.sleep(pause)

    async def keep(self) -> None:
        """Renew it for ever. Raises LeaseLost, and not later than it may be lost."""
        try:
            await self._renew_for_ever()
        except LeaseLost:
            self._lost = True
            self._on_lost()
            raise

    async def release(self) -> None:
        """Let another one lead at once, if we still do; otherwise it does nothing."""
        if self._held is None:
            return
        try:
            async with asyncio.timeout(RENEW_DEADLINE):
                await self._rewrite(_freed)
        except (KubeError, LeaseLost, TimeoutError) as error:
            _log.info("the Lease was not released: %s", _why(error))
        self._held = None

    # ----------------------------------------------------------------------------- one step

    def _is_free(self, lease: Object, unchanged_for: float) -> bool:
        if _claim(lease) == self._claim:
            return True  # we took it, and the answer got lost
        spec = lease.get("spec", {})
        duration = spec.get("leaseDurationSeconds") or DURATION
        return not spec.get("holderIdentity") or unchanged_for >= duration

    async def _look(self) -> Object | None:
        try:
            return await self._api.get(f"{self._path}/{self._name}", timeout=RENEW_DEADLINE)
        except NotFound:
            return None

    async def _take(self, lease: Object | None) -> None:
        now, started = _micro_time(), self._clock()
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 1 + (lease or {}).get("spec", {}).get("leaseTransitions", -1),
        }
        self._claim = (self._identity, now)
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": spec,
            }
            self._held = await self._api.post(self._path, body, timeout=RENEW_DEADLINE, urgent=True)
        else:
            self._held = await self._put({**lease, "spec": spec})
        self._renewed_at = started

    async def _renew_for_ever(self) -> None:
        pause = 0.0  # what lay between acquire() and keep() has used up some of its time
        while True:
            await asyncio.sleep(max(0.0, min(pause, self._left())))
            if not self.is_valid():
                raise LeaseLost(
                    f"{self._identity} could not renew its Lease for {RENEW_DEADLINE:.0f} s"
                )
            # The time before the call: the API server may carry it out at any moment of it.
            started = self._clock()
            try:
                async with asyncio.timeout(self._left()):
                    self._held = await self._rewrite(_renewed)
            except (KubeError, TimeoutError) as error:
                _log.warning("the Lease was not renewed: %s", _why(error))
                pause = RETRY
            else:
                self._renewed_at, pause = started, RENEW_EVERY

    def _left(self) -> float:
        """Seconds until it is not valid any more."""
        return self._renewed_at + RENEW_DEADLINE - self._clock()

    async def _rewrite(self, change: Callable[[Object], Object]) -> Object:
        assert self._held is not None, "only a Lease that we hold is ours to write"
        try:
            return await self._put(change(self._held))
        except (Conflict, NotFound) as error:
            # Perhaps somebody changed a label, or an answer to us got lost: who holds it counts.
            now = await self._look()
            if now is None or _claim(now) != self._claim:
                who = (now and _claim(now)[0]) or "nobody"
                raise LeaseLost(f"{self._identity} lost its Lease: {who} holds it now") from error
            return await self._put(change(now))

    async def _put(self, lease: Object) -> Object:
        # With its resourceVersion: only over what we have seen. Urgent: a thousand pods that are
        # being created must not cost us the leadership.
        return await self._api.put(
            f"{self._path}/{self._name}", lease, timeout=RENEW_DEADLINE, urgent=True
        )


def _claim(lease: Object) -> tuple[str, str]:
    spec = lease.get("spec", {})
    return spec.get("holderIdentity") or "", spec.get("acquireTime") or ""


def _renewed(lease: Object) -> Object:
    return {**lease, "spec": {**lease["spec"], "renewTime": _micro_time()}}


def _freed(lease: Object) -> Object:
    spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
    return {**lease, "spec": spec}


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
