"""A simulated store: a write-once log and objects, with the answers that real stores give."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.world.clock import Clock
from trainrun.errors import ObjectNotFound, StoreUnavailable

T = TypeVar("T")


@dataclass
class Weather:
    """How the store behaves until faults stop."""

    fails: float = 0.0
    """Chance that a call is not done."""
    late: float = 0.0
    """Chance that a call is done, and its answer is lost."""
    hidden: float = 0.0
    """Seconds for which a new object may be absent."""
    away: tuple[float, float] = (0.0, 0.0)
    """Moments between which nothing is answered."""


@dataclass
class Store:
    """What it holds, and who is told of new batches."""

    clock: Clock
    rng: random.Random
    weather: Weather
    on_batch: Callable[[bytes], None]
    log: list[bytes] = field(default_factory=list)
    objects: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Content and size by name."""
    visible: dict[str, float] = field(default_factory=dict)

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Let a call travel, with the weather."""
        await asyncio.sleep(self.rng.uniform(0.001, 0.2))
        weather = self.weather
        if weather.away[0] <= self.clock.now < weather.away[1] or self._happens(weather.fails):
            raise StoreUnavailable("the simulated store does not answer")
        answer = function(*arguments)
        await asyncio.sleep(self.rng.uniform(0.001, 0.1))
        if self._happens(weather.late):
            raise StoreUnavailable("the answer was lost")
        return answer

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def put(self, name: str, content: str, size: int) -> None:
        """Store an object."""
        if name not in self.objects:
            self.visible[name] = self.clock.now + self.rng.uniform(0, self.weather.hidden)
        self.objects[name] = (content, size)

    def find(self, name: str) -> tuple[str, int] | None:
        """What a reader sees."""
        return self.objects.get(name) if self.visible.get(name, 0) <= self.clock.now else None


@dataclass
class SimulatedTaskStorage:
    """The store, as the program and its workers know it."""

    store: Store
    read_contents: dict[Path, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """Of nothing."""
        return "sim://tasks"

    def read(self, after: int) -> list[bytes]:
        """Batches behind this position."""
        return self.store.log[after:]

    def append(self, position: int, batch: bytes) -> bool:
        """Write once."""
        if position <= len(self.store.log):
            return False
        assert position == len(self.store.log) + 1, "a batch is missing before this one"
        self.store.log.append(batch)
        self.store.on_batch(batch)
        return True

    def download(self, name: str, path: Path) -> None:
        """Note what the object holds."""
        found = self.store.find(name)
        if found is None:
            raise ObjectNotFound(name)
        self.read_contents[path] = found[0]

    def digest(self, name: str) -> str:
        """Of the object; empty: there is none."""
        found = self.store.find(name)
        return found[0] if found else ""

    def sizes(self, names: list[str]) -> list[int | None]:
        """Of each."""
        found = map(self.store.find, names)
        return [one and one[1] for one in found]

    def set_aside(self, name: str) -> None:
        """Away with a damaged one."""
        self.store.objects.pop(name, None)

    def upload(self, path: Path, name: str) -> None:
        """Not of the driver: workers put their objects, and so does main."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """All."""
        return [*self.store.objects]

    def delete(self, names: list[str]) -> None:
        """Some."""
        for name in names:
            self.store.objects.pop(name, None)
