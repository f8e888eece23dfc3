"""Which task goes to which worker: the oldest first, by CPUs and GPUs.

Layer: tasks, pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from trainrun.tasks.records import TaskRun

Need = tuple[float, int]
"""CPUs and GPUs."""


@dataclass(slots=True)
class WorkerRoom:
    """One worker's capacity, in all and free."""

    size: Need
    free: Need
    here: bool = True
    """Its connection is up."""

    def could(self, need: Need) -> bool:
        """Whether the task fits an empty worker."""
        return _within(need, self.size)

    def fits(self, need: Need) -> bool:
        """Whether the task fits now."""
        return self.here and _within(need, self.free)

    def spares(self, need: Need, kept: Need) -> bool:
        """Whether the task, if it fits, leaves `kept` free."""
        each = zip(self.free, need, kept, strict=True)
        return all(not needed or free - needed >= keep for free, needed, keep in each)

    def take(self, need: Need, sign: int = 1) -> None:
        """Occupy this need, or release it with -1. Rounded, since tenths of a CPU do not add up."""
        cpus, gpus = self.free
        self.free = round(cpus - sign * need[0], 6), gpus - sign * need[1]


class Places:
    """Workers, the tries that run there, and the tasks that may start, oldest first.

    Tasks with equal needs share a queue, so if all workers are full only the heads are looked at.
    """

    def __init__(self, expected: int) -> None:
        self.expected = expected
        """Workers that will join. Until they have, no task counts as too large for all of them."""
        self.rooms: dict[int, WorkerRoom] = {}
        self.runs: dict[TaskRun, tuple[int, Need]] = {}
        self._queues: dict[Need, list[tuple[int, str]]] = {}
        self._reserved: tuple[str, int] = ("", -1)
        """The oldest task that did not fit, and the worker reserved for it."""

    def joined(self, worker: int, cpus: float, gpus: int) -> None:
        """A worker connected, possibly again."""
        self.rooms[worker] = room = WorkerRoom((cpus, gpus), (cpus, gpus))
        for where, need in self.runs.values():
            if where == worker:
                room.take(need)

    def away(self, worker: int) -> None:
        """The worker's connection is lost; its tries keep their places."""
        if worker in self.rooms:
            self.rooms[worker].here = False

    def here(self, worker: int) -> bool:
        """Whether the worker is connected."""
        return worker in self.rooms and self.rooms[worker].here

    def take(self, run: TaskRun, worker: int, need: Need) -> None:
        """Occupy a place for this try."""
        self.runs[run] = worker, need
        self.rooms[worker].take(need)

    def free(self, run: TaskRun) -> None:
        """Release the place of this try; may be repeated."""
        if run in self.runs:
            worker, need = self.runs.pop(run)
            self.rooms[worker].take(need, -1)

    def push(self, order: int, key: str, need: Need) -> None:
        """This task may start."""
        heappush(self._queues.setdefault(need, []), (order, key))

    def place(
        self, alive: Callable[[str], bool], start: Callable[[str, int | None, Need], None]
    ) -> None:
        """Start each task that fits, oldest first; `start` must call `take`.

        Drops tasks that are not `alive`. `start` gets None as worker if no worker is large enough.
        The oldest task that does not fit now reserves one worker, always the same one, so that
        younger tasks cannot starve it."""
        heads = sorted((*queue[0], need) for need, queue in self._queues.items() if queue)
        reserved, kept = ("", -1), (0.0, 0)
        while heads:
            _, key, need = heappop(heads)
            if alive(key):
                worker = self._roomiest(need, reserved[1], kept)
                if worker is None and not self._hopeless(need):
                    # All tasks with these needs wait; younger ones with other needs may fit.
                    if not reserved[0]:
                        reserved, kept = (key, self._reserve(key, need)), need
                    continue
                start(key, worker, need)
            queue = self._queues[need]
            heappop(queue)
            if queue:
                heappush(heads, (*queue[0], need))
        self._reserved = reserved

    def _roomiest(self, need: Need, reserved: int, kept: Need) -> int | None:
        fitting = [
            worker
            for worker, room in self.rooms.items()
            if room.fits(need) and (worker != reserved or room.spares(need, kept))
        ]
        return min(fitting, key=self._fullness, default=None)

    def _reserve(self, key: str, need: Need) -> int:
        if self._reserved[0] == key and self.here(self._reserved[1]):
            return self._reserved[1]
        able = [w for w, room in self.rooms.items() if room.here and room.could(need)]
        return min(able, key=self._fullness, default=-1)

    def _fullness(self, worker: int) -> tuple[float, int, int]:
        room = self.rooms[worker]
        return -room.free[0], -room.free[1], worker

    def _hopeless(self, need: Need) -> bool:
        rooms = self.rooms.values()
        return len(rooms) >= self.expected and not any(room.could(need) for room in rooms)


def _within(need: Need, room: Need) -> bool:
    return need[0] <= room[0] and need[1] <= room[1]
