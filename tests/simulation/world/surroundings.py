"""What its user, the store and the API server may do to a run in the simulated cluster.

Layer: simulation. What hinders the run is told to the judge, with how long it does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.world.cluster import SimCluster
from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    from tests.simulation.world.cluster import StartTrouble
    from tests.simulation.world.operator import SimOperator
    from tests.simulation.world.worker import SimWorker
    from trainrun_operator.core.run.boundary import RefusedReason
    from trainrun_operator.core.run.causes import Limits


class TroubledCluster(SimCluster):
    """A cluster whose surroundings are in trouble when they are asked to."""

    # ------------------------------------------------------------------ the user

    def suspend(self, seconds: float) -> None:
        """The user suspends the run for a while, and then takes it back."""
        self.judge.disturbed(seconds)
        self.edit(replace(self.config, suspend=True))
        self.clock.after(seconds, lambda: self.edit(replace(self.config, suspend=False)))

    def edit_template(self) -> None:
        """The user edits the pod template."""
        self.edit(replace(self.config, template_hash=f"t{self.clock.now}"))

    def edit_endpoint(self) -> None:
        """The user names another address of the storage."""
        storage = replace(self.config.storage, endpoint_url=f"http://s3-{self.clock.now}")
        self.edit(replace(self.config, storage=storage))

    def ask_for_restart(self) -> None:
        """The user gives the annotation another value."""
        self.edit(replace(self.config, restart=f"r{self.clock.now}"))

    def edit_limits(self, limits: Limits) -> None:
        """The user edits the failure policy."""
        self.edit(replace(self.config, limits=limits))

    # ------------------------------------------------------------------ the store

    def damage(self) -> None:
        """The newest checkpoint rots; nobody knows before it is read."""
        newest = self.store.newest()
        if newest is not None:
            self.store.checkpoints[newest].damaged = True

    def spoil(self) -> None:
        """The newest checkpoint is whole, and its script dies of it."""
        newest = self.store.newest()
        if newest is not None:
            self.store.unloadable.add(newest)

    def misread(self, worker: SimWorker) -> None:
        """Memory or network of its node is bad: what it reads of checkpoints is wrong."""
        others = {w.agent.id for w in self.workers.values() if w.agent.alive}
        if not self.misreading & others:  # two bad nodes that agree are beyond any promise
            causes = Cause.MISREAD, Cause.CHECKPOINT_DAMAGED
            self.judge.struck(worker.agent, *causes, stays=True)
            self.misreading.add(worker.agent.id)

    def misconfigure(self, seconds: float) -> None:
        """The store does not take our credentials for a while."""
        self.store.refuses = True
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self._store_accepts)

    def rotate(self, seconds: float) -> None:
        """The Secret holds wrong keys for a while: who is made meanwhile has them for ever. Not
        before the run has claimed its storage: a first start fails early."""
        if self.status.storage_generation:
            self.wrong_secret = True
            self.clock.after(seconds, self._secret_is_right)

    def _secret_is_right(self) -> None:
        self.wrong_secret = False

    def _store_accepts(self) -> None:
        self.store.refuses = False

    def store_away(self, seconds: float) -> None:
        """Nothing can be read or written for a while."""
        self.store.available = False
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self._store_back)

    def _store_back(self) -> None:
        self.store.available = True

    def list_late(self, seconds: float) -> None:
        """The store's listings do not show for a while what is committed in that time."""
        self.store.lists_late = True
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self.list_all)

    def list_parts_late(self, seconds: float) -> None:
        """The store's listings do not show for a while which workers have stored their part."""
        self.store.lists_parts_late = True
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self.list_all)

    def list_all(self) -> None:
        """Its listings have caught up."""
        self.store.list_all()

    def store_used(self, seconds: float) -> None:
        """Another TrainRun owns the storage for a while."""
        self.store.used_by = "another"
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self._store_given_back)

    def _store_given_back(self) -> None:
        self.store.used_by = ""

    # ------------------------------------------------------------------ the API server

    def refuse(self, reason: RefusedReason, seconds: float) -> None:
        """Workers cannot be created for a while."""
        self.refusing = reason
        self.clock.after(seconds, self._refuses_no_more)

    def _refuses_no_more(self) -> None:
        self.refusing = None

    def trouble_starts(self, trouble: StartTrouble, seconds: float) -> None:
        """Workers that are to start within so many seconds do not."""
        self.start_trouble = trouble
        self.judge.disturbed(seconds)
        self.clock.after(seconds, self._starts_work)

    def _starts_work(self) -> None:
        self.start_trouble = None

    def stop_watch(self, operator: SimOperator, seconds: float) -> None:
        """An operator sees no worker come or go for a while; then it lists them again (410)."""
        operator.blind = True
        self.judge.blinded(seconds)
        self.clock.after(seconds, lambda: setattr(operator, "blind", False))

    def hang_requests(self, operator: SimOperator, seconds: float) -> None:
        """An operator's requests are not answered for a while."""
        operator.world.hangs_until = self.clock.now + seconds
        self.judge.blinded(seconds)
