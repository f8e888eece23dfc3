"""What an agent must do to follow the operator's last answer: hold, start or exit.

Layer: agent. Pure and level-triggered: derives tasks from the desired and the actual state; asking
again changes nothing. `worker_supervisor` carries them out with real processes, the simulated agent
with virtual ones. Invariants: an attempt starts at most once, never below one that was started or
held for, and only when nothing of an earlier attempt is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainrun.contract.agent_state import Held, Offer, Phase, Resolution
from trainrun.contract.answer import Answer, Exit, Hold, Order, ResolveRequest, Start

ASK_AGAIN = ("Unavailable", "InUse", "Misconfigured", "NoGoodCheckpoint", "Suspect")
"""Outcomes that time or a repair may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The last answer and what was done to follow it."""

    answer: Answer | None = None
    seen: str = ""
    """Digest of the last answer."""
    attempt: int = 0
    """The attempt that was started last; 0: none."""
    held: tuple[int, int] = (0, 0)
    """Attempt and number of the newest Hold: lower attempts never start."""
    flush_until: float = 0.0
    """When to give up the uploads that a Hold names."""
    kill_at: float = 0.0
    """Until then the processes that a Hold ends may exit by themselves, after SIGTERM."""
    linger_until: float = 0.0
    """Until then they are left alone."""
    offer: Offer | None = None

    @property
    def order(self) -> Order | None:
        """The current order."""
        return self.answer.order if self.answer is not None else None

    @property
    def stops(self) -> Hold | None:
        """The order that ends the attempt that was started last."""
        order = self.order
        return order if isinstance(order, Hold) and 0 < self.attempt < order.attempt else None

    @property
    def acknowledged(self) -> Held:
        """The Hold that is being carried out, as reported to the operator."""
        order = self.order
        if isinstance(order, Hold) and order.attempt > self.attempt:
            return Held(
                attempt=order.attempt,
                number=order.number,
                flush=order.flush,
                in_place=order.in_place,
                stand_in=order.stand_in,
            )
        return Held()

    @property
    def flush(self) -> tuple[int, ...]:
        """Steps of that attempt whose uploads come first."""
        return self.stops.flush if self.stops is not None else ()

    @property
    def in_place(self) -> bool:
        """They are described instead."""
        return self.stops is not None and self.stops.in_place

    @property
    def stand_in(self) -> tuple[int, ...]:
        """Slots of lost workers whose parts of them are uploaded, too."""
        return self.stops.stand_in if self.stops is not None else ()

    @property
    def runs(self) -> bool:
        """The attempt that was started last should still run."""
        return isinstance(self.order, Start) and self.order.attempt == self.attempt

    @property
    def of_attempt(self) -> Answer | None:
        """The answer, if its steps belong to the attempt that was started last."""
        return self.answer if self.runs or self.stops is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualState:
    """The state of the attempt that was started last."""

    alive: bool
    """A training process lives."""
    stopped: bool
    """Nothing is left of its processes, helpers included."""
    uploading: bool
    """A step of `DesiredState.flush` is not stored, or described, yet."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send each process SIGTERM, once, and let it exit."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill what is left of the processes."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Upload these steps, and no others; `in_place`: describe them instead, and upload none."""

    steps: tuple[int, ...]
    in_place: bool = False
    stand_in: tuple[int, ...] = ()
    """Slots whose copied parts of them are uploaded, too."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The uploads took too long: upload no more steps."""


@dataclass(frozen=True, slots=True)
class OfferPort:
    """Offer a master address for this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Resolve:
    """Claim this resume point; None: stop claiming."""

    request: ResolveRequest | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the processes of an attempt."""

    order: Start


@dataclass(frozen=True, slots=True)
class Leave:
    """Exit the agent."""

    order: Exit


Task = Terminate | Stop | Flush | GiveUp | OfferPort | Resolve | Begin | Leave


def answered(desired: DesiredState, answer: Answer, now: float) -> DesiredState:
    """The state after an answer; the same object if the answer is not new."""
    digest, order = answer.digest, answer.order
    if digest == desired.seen:
        return desired
    desired = replace(desired, answer=answer, seen=digest)
    if isinstance(order, Hold):
        held = max(desired.held, (order.attempt, order.number))
        desired = replace(
            desired,
            held=held,
            linger_until=now + order.linger_seconds,
            kill_at=now + order.grace_seconds,
            flush_until=now + order.flush_seconds,
        )
    return desired


def offered(desired: DesiredState, offer: Offer) -> DesiredState:
    """The state after a port was found."""
    return replace(desired, offer=offer)


def started(desired: DesiredState, attempt: int) -> DesiredState:
    """The state after the processes of this attempt were started."""
    return replace(desired, attempt=attempt, held=max(desired.held, (attempt, 0)), offer=None)


def released(desired: DesiredState) -> DesiredState:
    """The state of an agent that is exiting: it starts nothing more."""
    return replace(desired, answer=None)


def to_do(desired: DesiredState, actual: ActualState, now: float) -> tuple[Task, ...]:
    """The tasks to do now, in this order."""
    order = desired.order
    match order:
        case None:
            return ()
        case Start():
            if order.attempt < desired.held[0] or order.attempt <= desired.attempt:
                return ()  # refused, or done
            return (Begin(order),) if actual.stopped else (Stop(),)
        case Hold():
            if order.attempt <= desired.attempt:
                return ()  # a late answer: that attempt already runs
            if not actual.stopped:
                return _ending(desired, actual, now)
            return (*_uploads(desired, actual, now), *_preparation(desired, order, actual, now))
        case Exit():
            # An exit is final, so refuse one that is older than the last Hold.
            late = order.attempt > 0 and (order.attempt, order.number) < desired.held
            return () if late else (Leave(order),)


def gathers(desired: DesiredState, actual: ActualState) -> bool:
    """Nothing of an attempt runs, and the next one has not been ordered yet."""
    order = desired.order
    ahead = order is None or (isinstance(order, Hold) and order.attempt > desired.attempt)
    return ahead and actual.stopped


def phase(desired: DesiredState, actual: ActualState, now: float) -> Phase:
    """The phase of this worker for heartbeats."""
    if actual.alive or (desired.stops is not None and not actual.stopped):
        return "Running"
    return "Flushing" if _flushing(desired, actual, now) else "Idle"


def settled(found: Resolution | None, request: ResolveRequest) -> bool:
    """Whether the store's answer is final."""
    if found is None or found.attempt != request.attempt or found.outcome in ASK_AGAIN:
        return False
    if request.look or found.outcome == "Looked":
        return request.look and found.owner != "Unknown"
    return not request.proof or found.resume == request.committed


def _ending(desired: DesiredState, actual: ActualState, now: float) -> tuple[Task, ...]:
    if actual.alive and now < desired.linger_until:
        return ()
    return (Terminate(),) if actual.alive and now < desired.kill_at else (Stop(),)


def _flushing(desired: DesiredState, actual: ActualState, now: float) -> bool:
    return desired.stops is not None and actual.uploading and now < desired.flush_until


def _uploads(desired: DesiredState, actual: ActualState, now: float) -> tuple[Task, ...]:
    if desired.stops is None:
        return ()
    if actual.uploading and now >= desired.flush_until:
        return (GiveUp(),)
    return (Flush(desired.flush, desired.in_place, desired.stand_in),)


def _preparation(
    desired: DesiredState, hold: Hold, actual: ActualState, now: float
) -> tuple[Task, ...]:
    if _flushing(desired, actual, now):
        return ()
    new = desired.offer is None or desired.offer.attempt != hold.attempt
    offer = (OfferPort(hold.attempt),) if hold.offer and new else ()
    return (*offer, Resolve(hold.resolve))
