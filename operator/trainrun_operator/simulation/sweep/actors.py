"""Operators and clerks of simulated sweeps: each effect is one turn, and any turn may be the last.

Layer: simulation. What one says to the other may be lost, come twice, or late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trainrun.sweep.clerk import next_record
from trainrun.sweep.fold import fold
from trainrun.sweep.targets import Targets
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.observation import ClerkUnknown, SweepObservation
from trainrun_operator.core.sweep.plan import SweepPlan
from trainrun_operator.core.sweep.planner import decide_sweep
from trainrun_operator.simulation.sweep.world import StoreAway, SweepWorld

REMEMBERED = 4
"""Messages on their way: what arrives late is one of these."""


class Post:
    """Messages between all operators and all clerks."""

    def __init__(self) -> None:
        self.targets: list[Targets] = []
        self.views: list[SweepView] = []
        self.reliable = False

    def send_targets(self, targets: Targets) -> None:
        """For any clerk."""
        self.targets = [*self.targets, targets][-REMEMBERED:]

    def send_view(self, view: SweepView) -> None:
        """For any operator."""
        self.views = [*self.views, view][-REMEMBERED:]


class Actor(Protocol):
    """Somebody who acts in turns."""

    def turns(self) -> Iterator[None]:
        """For ever."""
        ...


class SimulatedOperator:
    """Sees, decides, writes what it acts on, acts: one effect per turn."""

    def __init__(self, number: int, world: SweepWorld, post: Post) -> None:
        self.number = number
        self._world = world
        self._post = post
        self._config = world.config
        self.plan: SweepPlan | None = None
        """Of the last look."""

    def turns(self) -> Iterator[None]:
        """For ever."""
        while True:
            yield from self._look()

    def _look(self) -> Iterator[None]:
        world = self._world
        if self._post.reliable or world.random.random() < 0.7:
            self._config = world.config
        acted_on, version = world.acted_on, world.version
        views = self._post.views
        late = views[-1:] if self._post.reliable else world.random.choices(views) if views else []
        log = late[0] if late else ClerkUnknown(message="no clerk was heard")
        mine = world.config.uid == self._config.uid
        runs = tuple(it.seen() for it in world.runs.values()) if mine else ()
        yield
        plan = self.plan = decide_sweep(
            SweepObservation(log=log, acted_on=acted_on, runs=runs), self._config, name="s"
        )
        yield
        if not isinstance(log, SweepView):
            return
        if plan.guarded and log.position > acted_on:
            world.write_acted_on(log.position, version)
            return
        if plan.targets is not None:
            self._post.send_targets(plan.targets)
        yield
        led = world.leader == self.number
        for action in plan.actions:
            # The Lease is looked at before every write; what is on its way is done all the same.
            if not led:
                return
            leads = world.leader == self.number
            world.apply(action, log, self._config, leads=leads)
            led = leads
            yield


class SimulatedClerk:
    """Reads on, writes the next record, tells what it knows: one effect per turn."""

    def __init__(self, world: SweepWorld, post: Post) -> None:
        self._world = world
        self._post = post
        self._view = SweepView()

    def turns(self) -> Iterator[None]:
        """For ever."""
        while True:
            try:
                yield from self._work()
            except StoreAway:
                yield

    def _work(self) -> Iterator[None]:
        world, post = self._world, self._post
        self._view = fold(world.read(self._view.position), self._view)
        yield
        post.send_view(self._view)
        yield
        boxes = post.targets
        if not boxes:
            return
        targets = boxes[-1] if post.reliable else world.random.choice(boxes)
        stored, active = world.stored(targets.ended, self._view), world.random.uniform(0, 12)
        yield
        record = next_record(self._view, targets, world.config.search, active=active, stored=stored)
        yield
        if record is not None:
            world.put(self._view.position + 1, record, targets.session)
