"""The logs of a run's worker pods, read for the command line.

Layer: worlds/kubernetes. Uses only the credentials of the user's kubeconfig.
Invariant: each line is returned once, however often the connection breaks: it has the kubelet's
time stamp, and after a break the log is read again from the second of the last one. A stamp is from
the node's clock, with the offset of its time zone, which may change.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainrun.errors import TrainRunError
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Invalid, NotFound, Unavailable
from trainrun_operator.kube.raw import mapping
from trainrun_operator.worlds.kubernetes import names
from trainrun_operator.worlds.kubernetes.run_object import run_version

LOOK = 1.0
"""Seconds between two lists of the pods, and before a log is requested again."""
MAX_PODS = 100
"""Logs followed at once; in a larger gang the user must choose ranks."""
MAX_WAITING = 10_000
"""Lines that may wait to be shown; at this number reading pauses."""
LAST_LINES = 10.0
"""Seconds for the logs to end after the run has ended."""
READERS = 16
"""Logs read at once without following."""
_FRACTION = re.compile(r"\.(\d{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPod:
    """A worker pod of a run."""

    namespace: str
    name: str
    slot: int | None
    """None: it has none yet."""
    container: str
    """The training container."""
    phase: str
    node: str = ""
    """Empty: none yet."""

    @property
    def over(self) -> bool:
        """Whether it has ended and prints nothing more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def path(self) -> str:
        """The pod's path in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLine:
    """A line of a pod's log."""

    pod: WorkerPod
    stamp: str
    """When it was printed, in RFC 3339."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPast:
    """The last lines that a pod had printed when it was first read, if only the tail is wanted.

    They arrive together: a later line may show which process an earlier one belongs to."""

    pod: WorkerPod
    lines: tuple[PodLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGone:
    """This pod prints nothing more."""

    pod: WorkerPod


PodEvent = PodPast | PodLine | PodGone


def moment_of(stamp: str) -> datetime | None:
    """The time of a stamp, to the microsecond, in UTC; None: it is not a stamp."""
    try:
        moment = datetime.fromisoformat(stamp)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _stamp_key(stamp: str) -> tuple[datetime, int] | None:
    """Second and nanosecond of a stamp, to compare."""
    moment = moment_of(stamp)
    if moment is None:
        return None
    fraction = _FRACTION.search(stamp)
    return moment.replace(microsecond=0), int(fraction[1].ljust(9, "0")) if fraction else 0


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads one pod's log, once."""

    api: KubeApi
    pod: WorkerPod
    tail: int | None
    _last: tuple[datetime, int] | None = None
    """The stamp of the newest line returned."""
    _same: int = 0
    """Lines with that stamp returned so far."""

    async def read(self, *, follow: bool) -> AsyncGenerator[PodLine]:
        """The lines so far, and with `follow` new ones until the connection ends."""
        params = {"container": self.pod.container, "timestamps": "true"}
        if follow:
            params["follow"] = "true"
        if self._last is not None:
            params["sinceTime"] = f"{self._last[0]:%Y-%m-%dT%H:%M:%SZ}"
        elif self.tail is not None:
            params["tailLines"] = str(self.tail)
        last, skip = self._last, self._same
        async with aclosing(self.api.text_lines(f"{self.pod.path}/log", params=params)) as lines:
            async for line in lines:
                stamp, _, text = line.partition(" ")
                key = _stamp_key(stamp)
                if key is not None:  # else a message of the kubelet in place of a log
                    if last is not None and key < last:
                        continue
                    if key == last and skip:
                        skip -= 1
                        continue
                    self._same = self._same + 1 if key == self._last else 1
                    self._last = key
                yield PodLine(pod=self.pod, stamp=stamp, text=text)

    async def follow(self) -> AsyncGenerator[PodLine | PodPast]:
        """The lines until the pod has ended or is gone."""
        past = self.tail is not None
        while True:
            try:
                if past:
                    lines = [line async for line in self.read(follow=False)]
                    yield PodPast(pod=self.pod, lines=tuple(lines))
                    past = False
                async with aclosing(self.read(follow=True)) as coming:
                    async for line in coming:
                        yield line
                now = await self.api.get(self.pod.path)
                if _pod(now, self.pod.namespace).over:
                    return
            except NotFound:
                return
            except (Unavailable, Invalid):
                pass  # its node does not answer, or it has not been started yet
            await asyncio.sleep(LOOK)


@dataclass(slots=True, kw_only=True)
class _Follower:
    """Follows the present and future pods of one run."""

    api: KubeApi
    namespace: str
    run: str
    uid: str
    wanted: Callable[[int | None], bool]
    tail: int | None
    _queue: asyncio.Queue[PodEvent | TrainRunError | None] = field(
        default_factory=lambda: asyncio.Queue(MAX_WAITING)
    )
    """None: the run has ended."""
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _first: bool = True

    async def events(self, too_many: Callable[[int], None]) -> AsyncGenerator[PodEvent]:
        """Lines and ended pods, until the run has ended."""
        polling = asyncio.create_task(self._poll(too_many))
        try:
            while True:
                event = await self._queue.get()
                if event is None:
                    return
                if isinstance(event, TrainRunError):
                    raise event
                yield event
        finally:
            polling.cancel()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(polling, *self._tasks.values(), return_exceptions=True)

    async def _poll(self, too_many: Callable[[int], None]) -> None:
        try:
            while not await self._over():
                try:
                    pods = await worker_pods(self.api, self.namespace, self.uid)
                    self._start_reading([pod for pod in pods if self.wanted(pod.slot)], too_many)
                except Unavailable:
                    pass  # until the API server is back, or the user stops
                await asyncio.sleep(LOOK)
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=LAST_LINES)
        except TrainRunError as error:
            await self._queue.put(error)
        else:
            await self._queue.put(None)

    def _start_reading(self, pods: list[WorkerPod], too_many: Callable[[int], None]) -> None:
        new = [pod for pod in pods if pod.name not in self._tasks]
        alive = sum(not task.done() for task in self._tasks.values())
        room = max(0, MAX_PODS - alive)
        if self._first and len(new) > room:
            too_many(len(new))
        # Pods that appear later are read from their start.
        tail = self.tail if self._first else None
        for pod in new[:room]:
            reader = _Reader(api=self.api, pod=pod, tail=tail)
            self._tasks[pod.name] = asyncio.create_task(self._follow(reader))
        self._first = self._first and not pods

    async def _follow(self, reader: _Reader) -> None:
        try:
            async with aclosing(reader.follow()) as events:
                async for event in events:
                    await self._queue.put(event)
        except TrainRunError as error:
            await self._queue.put(error)
        await self._queue.put(PodGone(pod=reader.pod))

    async def _over(self) -> bool:
        try:
            raw = await self.api.get(TRAINRUN.path(self.namespace, self.run))
        except NotFound:
            return True
        except Unavailable:
            return False
        return run_version(raw).status.finished


async def worker_pods(api: KubeApi, namespace: str, uid: str) -> list[WorkerPod]:
    """The pods of the run with this uid, by slot."""
    params = {"labelSelector": f"{names.RUN_UID_LABEL}={uid}"}
    raws = await api.list_all(f"/api/v1/namespaces/{namespace}/pods", params=params)
    pods = [_pod(raw, namespace) for raw in raws]
    return sorted(pods, key=lambda pod: (pod.slot is None, pod.slot or 0, pod.name))


def _pod(raw: Mapping[str, object], namespace: str) -> WorkerPod:
    metadata = mapping(raw, "metadata")
    slot = str(mapping(metadata, "labels").get(names.SLOT_LABEL, ""))
    container = mapping(metadata, "annotations").get(names.DEFAULT_CONTAINER_ANNOTATION)
    return WorkerPod(
        namespace=namespace,
        name=str(metadata.get("name", "")),
        slot=int(slot) if slot.isdecimal() else None,
        container=str(container or "worker"),
        phase=str(mapping(raw, "status").get("phase", "")),
        node=str(mapping(raw, "spec").get("nodeName", "")),
    )


async def read_pods(
    namespace: str, uid: str, *, wanted: Callable[[int | None], bool], tail: int
) -> list[list[PodLine]]:
    """The last lines of each present pod of a run. Raises KubeError, NoCluster."""
    reading = asyncio.Semaphore(READERS)

    async def read(api: KubeApi, pod: WorkerPod) -> list[PodLine]:
        async with reading:
            return await last_lines(api, pod, tail=tail)

    async with KubeApi.connected() as api:
        pods = await worker_pods(api, namespace, uid)
        return list(await asyncio.gather(*(read(api, pod) for pod in pods if wanted(pod.slot))))


async def last_lines(api: KubeApi, pod: WorkerPod, *, tail: int) -> list[PodLine]:
    """The last lines of a pod; none if it has not started yet, is gone, or its node does not
    answer. Raises KubeError."""
    try:
        return [line async for line in _Reader(api=api, pod=pod, tail=tail).read(follow=False)]
    except (Invalid, NotFound, Unavailable):
        return []


async def follow_pods(
    namespace: str,
    run: str,
    uid: str,
    *,
    wanted: Callable[[int | None], bool],
    tail: int | None,
    too_many: Callable[[int], None],
    show: Callable[[PodEvent], None],
) -> None:
    """Show the lines of a run's present and future pods until the run has ended. Raises KubeError,
    NoCluster."""
    async with KubeApi.connected() as api:
        follower = _Follower(
            api=api, namespace=namespace, run=run, uid=uid, wanted=wanted, tail=tail
        )
        async with aclosing(follower.events(too_many)) as events:
            async for event in events:
                show(event)
