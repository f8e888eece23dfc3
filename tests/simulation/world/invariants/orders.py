"""Plans and orders: status first, orders are copies of the start record, one attempt at a time.

Layer: simulation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.contract.answer import Start
from trainrun_operator.api.run.status import IDENTITY_LENGTH
from trainrun_operator.core.run.answers import start_order
from trainrun_operator.core.run.boundary import DeleteWorker
from trainrun_operator.core.run.view import worker_name

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.core.run.boundary import Observation, Plan


class OrdersGiven:
    """Judges what operators plan, and what agents are told and do."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._saves: dict[int, int] = {}
        """The call of should_save() that each attempt's ranks answer with yes."""

    def planned(self, observation: Observation, plan: Plan) -> None:
        """Before a plan is acted on."""
        if plan.transition and (plan.actions or plan.answers):
            self._case.wrong("a plan changes the status and acts in one pass")
        if observation.status.finished and any(
            isinstance(answer.order, Start) for answer in plan.answers.values()
        ):
            self._case.wrong("a finished run starts something")
        self._roster_stays(observation, plan)

    def _roster_stays(self, observation: Observation, plan: Plan) -> None:
        """A worker of a running attempt is deleted only after an incident has ended the attempt."""
        status = observation.status
        record = status.start_record
        if record is None or status.ending is not None or status.finished:
            return
        working = {
            worker_name(self._case.world.config, slot=slot, created_for=number)
            for slot, number in enumerate(record.roster)
        }
        for action in plan.actions:
            if isinstance(action, DeleteWorker) and action.name in working:
                self._case.wrong(f"{action.name} is deleted while attempt {record.attempt} runs")

    def started(self, agent: SimAgent, order: Start) -> None:
        """An agent accepts a start order."""
        case = self._case
        record = case.records.get(order.attempt)
        if record is None:
            case.wrong(f"attempt {order.attempt} was ordered without a start record")
        elif start_order(record) != replace(order, source=None, holders=(), partners=()):
            case.wrong(f"an order of attempt {order.attempt} differs from its start record")
        elif (record.roster[agent.slot], record.identity(agent.slot)) != (
            agent.created_for,
            agent.id[:IDENTITY_LENGTH],
        ):
            case.wrong(f"{agent.name} started attempt {order.attempt} and is not in its roster")
        if order.staged and order.resume not in agent.carrying.holds(agent):
            case.wrong(f"{agent.name} starts from {order.resume} and has no part of it")
        if agent.wrong_keys and order.resume is not None:
            case.wrong(
                f"{agent.name} started attempt {order.attempt} and cannot read {order.resume}"
            )
        if order.attempt in agent.started:
            case.wrong(f"{agent.name} started attempt {order.attempt} twice")
        self._one_at_a_time(agent, order)
        self._one_storage(agent, order)

    def _one_at_a_time(self, agent: SimAgent, order: Start) -> None:
        # A worker that was given up for silence may compute on: the store fences what it commits.
        for lower in range(1, order.attempt if not self._case.heartbeats_lost else 1):
            for peer in self._case.world.gang(lower):
                if peer.computes and peer.alive and not peer.unheard:
                    self._case.wrong(
                        f"{peer.name} computes attempt {lower}, {agent.name} {order.attempt}"
                    )

    def _one_storage(self, agent: SimAgent, order: Start) -> None:
        """All workers of an attempt were made with the same storage."""
        world = self._case.world
        gang = {agent.name, *(peer.name for peer in world.gang(order.attempt))}
        if len({world.workers[name].storage for name in gang}) > 1:
            self._case.wrong(f"attempt {order.attempt} has workers that write to two storages")
        if agent.generation != world.store.generation:
            self._case.wrong(f"{agent.name} writes to generation {agent.generation}")

    def save_committed(self, agent: SimAgent, call: int) -> None:
        """The call answered with yes is the same on every rank of an attempt."""
        known = self._saves.setdefault(agent.attempt, call)
        if known != call:
            self._case.wrong(f"attempt {agent.attempt} saves at calls {known} and {call}")
        for peer in self._case.world.gang(agent.attempt):
            if peer.computes and call not in (peer.vote.prepared, peer.vote.committed):
                self._case.wrong(
                    f"{agent.name} saves at call {call}, {peer.name} has not prepared it"
                )
