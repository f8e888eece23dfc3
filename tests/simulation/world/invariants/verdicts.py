"""A run has succeeded when its script says so on every rank, and not before.

Layer: simulation. A rank says so by exit code 0: after finish(), or without having been asked to
save or sent a signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.invariants.case import Case
    from trainrun.contract.agent_state import AgentState
    from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
    from trainrun_operator.core.run.boundary import Observation, Plan, WorkerFact

STOPS = ("Preempted", "TemplateChange", "Yielded", "Restart")
"""Ends of an attempt that has to stop, though nothing was wrong with it."""


class Verdicts:
    """Judges ends without an incident, by how the processes really ended."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._stepped: set[int] = set()
        """Attempts in which a step was done."""

    def planned(self, observation: Observation, plan: Plan) -> None:
        """Before a plan is acted on."""
        ending, incident = plan.status.ending, plan.status.incident
        if ending is None or observation.status.ending is not None:
            return
        why = incident.cause if incident is not None else ending.kind
        if why in STOPS and _all_said_so(observation):
            self._case.wrong(f"attempt {ending.attempt} has finished, and ends by {why}")

    def status(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        """A status was written."""
        gang = self._case.world.gang(new.attempt)
        for attempt in {old.attempt, new.attempt}:
            trainings = (agent.training for agent in self._case.world.gang(attempt))
            if any(t is not None and t.step > t.begin for t in trainings):
                self._stepped.add(attempt)
        complete = new.condition("Complete")
        if new.start_record is None or len(gang) < len(new.start_record.roster):
            return  # set back, or found finished in the store
        if complete is not None and complete.reason == "Succeeded" and not old.finished:
            self._succeeded(new, gang)
        ending = new.ending
        yielded = ending is not None and ending.kind == "Yielded" and old.ending is None
        if yielded and all(_has_finished(agent) for agent in gang):
            self._case.wrong(f"attempt {new.attempt} has finished, and the run goes on")

    def _succeeded(self, new: TrainRunStatus, gang: list[SimAgent]) -> None:
        attempt = new.attempt
        trainings = [agent.training for agent in gang]
        if not all(training is not None and training.ended_well for training in trainings):
            self._case.wrong(f"the run has succeeded, and attempt {attempt} has not ended well")
        lost = max(new.reached or 0, 0) > max(t.begin for t in trainings if t is not None)
        if (
            lost
            and self._same_template(new)
            and all(t is not None and t.step == t.begin and not t.finished for t in trainings)
        ):
            self._case.wrong(f"the run has succeeded, and attempt {attempt} has done nothing")
        ends = [end for t in trainings if t is not None for end, _ in t.exits.values()]
        if any(end.yielded for end in ends) and not any(map(_has_finished, gang)):
            self._case.wrong(f"the run has succeeded, and attempt {attempt} has yielded")

    def _same_template(self, new: TrainRunStatus) -> bool:
        """Its newest attempt is made from the template of the last one that has done a step."""
        records = self._case.records
        stepped = [number for number in self._stepped & {*records} if number < new.attempt]
        made_from = new.start_record.template_hash if new.start_record is not None else ""
        return bool(stepped) and records[max(stepped)].template_hash == made_from


def _all_said_so(observation: Observation) -> bool:
    """An operator knows of every rank that it has ended well, and none of them to be continued."""
    record = observation.status.start_record
    if record is None:
        return False
    known = {w.slot: w.agent for w in observation.workers if _takes_part(w, record)}
    return len(known) == len(record.roster) and all(map(_said_so, known.values()))


def _takes_part(worker: WorkerFact, record: StartRecord) -> bool:
    if worker.agent is None or worker.phase != "Running" or worker.slot >= len(record.roster):
        return False
    same = worker.created_for == record.roster[worker.slot]
    return same and worker.agent.attempt == record.attempt


def _said_so(agent: AgentState | None) -> bool:
    if agent is None or agent.phase == "Running" or not agent.exits:
        return False
    return all(end.well and not end.yielded for end in agent.exits)


def _has_finished(agent: SimAgent) -> bool:
    """All its ranks have ended well after finish()."""
    training = agent.training
    return training is not None and training.ended_well and training.finished == {*training.ranks}
