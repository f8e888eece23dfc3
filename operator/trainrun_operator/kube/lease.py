"""Leadership: one Lease that one process holds at a time.

Layer: kube. Invariants: no wall clock is trusted: a follower takes the Lease
when it has not seen it change for its whole duration; a leader stops when it could not renew it for
RENEW_TIMEOUT, which is shorter by more than any write takes to arrive; a lost Lease stays lost for
this process, even if the process was only paused.

The Lease also lists the addresses of all contenders: the holder first, then the newest before the
older. A dead process does not remove its address, so only MAX_ADDRESSES are kept; a process that
restarts in its pod has the same address.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainrun.errors import TrainRunError
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound

ANNOTATION = "trainrun.dev/operators"
"""`address:port` of each contender, separated by commas."""
MAX_ADDRESSES = 6
DURATION = 10.0
"""Seconds without a renewal after which others may take a Lease."""
RENEW_TIMEOUT = 6.0
"""Seconds without a renewal after which its holder stops acting."""
RETRY = 1.0
"""Seconds between two reads of another holder's Lease, and after a failed renewal."""
RENEW_EVERY = 2.0

_PLACE = re.compile(r"[\w.:\[\]-]{1,80}", re.ASCII)
"""A valid address: any process with write access to the Lease could put anything there."""

_log = logging.getLogger(__name__)


def addresses_in(lease: Object) -> tuple[str, ...]:
    """The known addresses, the holder's first."""
    text = (lease.get("metadata", {}).get("annotations") or {}).get(ANNOTATION, "")
    return tuple(filter(_PLACE.fullmatch, text.split(",")))


def with_holder(lease: Object, address: str) -> Object:
    """The Lease after this contender has taken it."""
    return _with(lease, (address, *_without(lease, address)))


def with_contender(lease: Object, address: str) -> Object:
    """The Lease with this contender in it; unchanged if it is there already."""
    there = addresses_in(lease)
    return lease if address in ("", *there) else _with(lease, (*there[:1], address, *there[1:]))


def without_contender(lease: Object, address: str) -> Object:
    """The Lease without this contender."""
    return _with(lease, _without(lease, address))


def _without(lease: Object, address: str) -> tuple[str, ...]:
    return tuple(other for other in addresses_in(lease) if other != address)


def _with(lease: Object, addresses: tuple[str, ...]) -> Object:
    metadata = lease["metadata"]
    text = ",".join(filter(None, addresses[:MAX_ADDRESSES]))
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: text}
    return {**lease, "metadata": {**metadata, "annotations": annotations}}


class LeaseLost(TrainRunError):
    """We no longer lead: another process does, or soon will."""


def boot_time() -> float:
    """Seconds since boot. Unlike time.monotonic() it counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(kw_only=True, eq=False, repr=False)
class Lease:
    """A Lease object, as one contender sees it."""

    api: KubeApi
    namespace: str
    name: str
    identity: str
    """The holder's name, shown to users."""
    address: str = ""
    """Our address for others; empty: none."""
    clock: Callable[[], float] = boot_time

    def __post_init__(self) -> None:
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        self._claim = ("", "")
        """Identifies our tenure, even against that of a process of the same name."""
        self._held: Object | None = None
        """The Lease as we last wrote it; None: it is not ours."""
        self._seen: Object = {}
        """The Lease as we last read or wrote it, with any holder."""
        self.vacant_for = 0.0
        """Seconds since the last renewal when we took it, by two wall clocks: only an estimate.
        0: it had been released, or is new."""
        self._renewed_at = 0.0
        self._lost = False
        self.refusal = ""
        """Why we may not take it, in the API server's words; empty: we may take it."""

    def is_valid(self) -> bool:
        """Whether we lead, so that no other process can. Check before every write."""
        if self._held is None or self._lost:
            return False
        self._lost = self.clock() >= self._renewed_at + RENEW_TIMEOUT
        return not self._lost

    @property
    def addresses(self) -> tuple[str, ...]:
        """The contenders' addresses as we last saw them, the holder's first."""
        return addresses_in(self._seen)

    async def acquire(self) -> None:
        """Return once we hold it; waits while another process renews it."""
        seen: Object | None = None
        seen_at = 0.0
        while True:
            pause = RETRY * random.uniform(0.9, 1.1)
            try:
                async with asyncio.timeout(RENEW_TIMEOUT):
                    lease = await self._read()
                    # Not the version: a new contender changes that, too, and is no renewal.
                    if lease is not None and lease.get("spec") != seen:
                        seen, seen_at = lease.get("spec"), self.clock()
                    if lease is None or self._is_free(lease, self.clock() - seen_at):
                        await self._take(lease)
                        self.refusal = ""
                        return
                    await self._join(lease)
            except (Conflict, AlreadyExists):
                _log.debug("another contender was faster")
            except (KubeError, TimeoutError) as error:
                _log.warning("the Lease cannot be taken: %s", _why(error))
                if isinstance(error, Forbidden):
                    self.refusal = f"the Lease cannot be taken: {error}"
            else:
                self.refusal = ""
            await asyncio.sleep(pause)

    async def keep(self) -> None:
        """Renew it forever. Raises LeaseLost before another process can hold it."""
        try:
            await self._renew_for_ever()
        except LeaseLost:
            self._lost = True
            raise

    async def release(self) -> None:
        """If we lead, let another process lead at once; otherwise do nothing."""
        if self._held is None:
            return
        try:
            async with asyncio.timeout(RENEW_TIMEOUT):
                await self._rewrite(lambda lease: without_contender(_freed(lease), self.address))
        except (KubeError, LeaseLost, TimeoutError) as error:
            _log.info("the Lease was not released: %s", _why(error))
        self._held = None

    # ----------------------------------------------------------------------------- one step

    def _is_free(self, lease: Object, unchanged_for: float) -> bool:
        if _claim(lease) == self._claim:
            return True  # we took it, but the answer got lost
        spec = lease.get("spec", {})
        duration = spec.get("leaseDurationSeconds") or DURATION
        return not spec.get("holderIdentity") or unchanged_for >= duration

    async def _read(self) -> Object | None:
        try:
            self._seen = await self.api.get(f"{self._path}/{self.name}", timeout=RENEW_TIMEOUT)
        except NotFound:
            return None
        return self._seen

    async def _join(self, lease: Object) -> None:
        """Add our address, once."""
        joined = with_contender(lease, self.address)
        if joined != lease:
            await self._put(joined)

    async def _take(self, lease: Object | None) -> None:
        now, started = _micro_time(), self.clock()
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(DURATION),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 1 + (lease or {}).get("spec", {}).get("leaseTransitions", -1),
        }
        self._claim = (self.identity, now)
        if lease is None:
            body: Object = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": spec,
            }
            held = with_holder(body, self.address)
            self._held = self._seen = await self.api.post(
                self._path, held, timeout=RENEW_TIMEOUT, urgent=True
            )
        else:
            self._held = await self._put(with_holder({**lease, "spec": spec}, self.address))
            self.vacant_for = _unrenewed_for(lease)
        self._renewed_at = started

    async def _renew_for_ever(self) -> None:
        pause = 0.0  # the time between acquire() and keep() counts already
        while True:
            await asyncio.sleep(max(0.0, min(pause, self._left())))
            if not self.is_valid():
                raise LeaseLost(
                    f"{self.identity} could not renew its Lease for {RENEW_TIMEOUT:.0f} s"
                )
            # The time before the call: the API server may renew it at any moment during the call.
            started = self.clock()
            try:
                async with asyncio.timeout(self._left()):
                    self._held = await self._rewrite(_renewed)
            except (KubeError, TimeoutError) as error:
                _log.warning("the Lease was not renewed: %s", _why(error))
                pause = RETRY
            else:
                self._renewed_at, pause = started, RENEW_EVERY

    def _left(self) -> float:
        """Seconds until it is no longer valid."""
        return self._renewed_at + RENEW_TIMEOUT - self.clock()

    async def _rewrite(self, change: Callable[[Object], Object]) -> Object:
        assert self._held is not None, "only the holder writes a Lease"
        try:
            return await self._put(change(self._held))
        except (Conflict, NotFound) as error:
            # Perhaps a label changed, or an answer to us got lost: only the holder matters.
            now = await self._read()
            if now is None or _claim(now) != self._claim:
                who = (now and _claim(now)[0]) or "no process"
                raise LeaseLost(f"{self.identity} lost its Lease: {who} holds it now") from error
            return await self._put(change(now))

    async def _put(self, lease: Object) -> Object:
        # With its resourceVersion: only over the version that we read. Urgent: creating a thousand
        # pods must not cost us the leadership.
        self._seen = await self.api.put(
            f"{self._path}/{self.name}", lease, timeout=RENEW_TIMEOUT, urgent=True
        )
        return self._seen


def _claim(lease: Object) -> tuple[str, str]:
    spec = lease.get("spec", {})
    return spec.get("holderIdentity") or "", spec.get("acquireTime") or ""


def _unrenewed_for(lease: Object) -> float:
    """Seconds since its holder last renewed it, by its wall clock and ours; 0: no holder."""
    spec = lease.get("spec", {})
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        return 0.0
    return (datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])).total_seconds()


def _renewed(lease: Object) -> Object:
    return {**lease, "spec": {**lease["spec"], "renewTime": _micro_time()}}


def _freed(lease: Object) -> Object:
    spec = {key: value for key, value in lease["spec"].items() if key != "holderIdentity"}
    return {**lease, "spec": spec}


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
