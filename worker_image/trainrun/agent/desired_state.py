"""What an agent has to do about the operator's last answer: hold, start or leave.

Layer: agent. Pure and level-triggered: from what was told and what is true now follows what is to
be done; asking again changes nothing. `worker_supervisor` does it with real processes, the
simulated agent with virtual ones. Invariants: an attempt is started at most once, never a lower one
than was started or held for, and only when nothing of an earlier one is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainrun.contract.agent_state import Held, Offer, Phase, Resolution
from trainrun.contract.answer import Answer, Exit, Hold, Order, ResolveRequest, Start

ASK_AGAIN = ("Unavailable", "InUse", "Misconfigured", "NoGoodCheckpoint", "Suspect")
"""Outcomes that time, or somebody who repairs something, may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What was told and what was done about it."""

    answer: Answer | None = None
    seen: str = ""
    """Digest of the last answer."""
    attempt: int = 0
    """The attempt that was started last; 0: none."""
    held: tuple[int, int] = (0, 0)
    """Attempt and number of the newest Hold: no attempt below is started any more."""
    flush_until: float = 0.0
    """When the uploads that a Hold names are given up."""
    kill_at: float = 0.0
    """Until then the processes that a Hold ends may end by themselves, after SIGTERM."""
    linger_until: float = 0.0
    """Until then nothing is done to them at all."""
    offer: Offer | None = None

    @property
    def order(self) -> Order | None:
        """What is ordered now."""
        return self.answer.order if self.answer is not None else None

    @property
    def stops(self) -> Hold | None:
        """The order that ends the attempt that was started last."""
        order = self.order
        return order if isinstance(order, Hold) and 0 < self.attempt < order.attempt else None

    @property
    def acknowledged(self) -> Held:
        """The Hold that is carried out, as the operator is told."""
        order = self.order
        if isinstance(order, Hold) and order.attempt > self.attempt:
            return Held(attempt=order.attempt, number=order.number, flush=order.flush)
        return Held()

    @property
    def flush(self) -> tuple[int, ...]:
        """Steps of that attempt whose uploads come first."""
        return self.stops.flush if self.stops is not None else ()

    @property
    def runs(self) -> bool:
        """The attempt that was started last is still the one to run."""
        return isinstance(self.order, Start) and self.order.attempt == self.attempt

    @property
    def of_attempt(self) -> Answer | None:
        """The answer, where what it says of steps is about the attempt that was started last."""
        return self.answer if self.runs or self.stops is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActualState:
    """What is true of the attempt that was started last."""

    alive: bool
    """A training process lives."""
    stopped: bool
    """Nothing is left of its processes, helpers included."""
    uploading: bool
    """A step of `DesiredState.flush` is still to be stored."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Send each process SIGTERM, once, and let it end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End what is left of the processes."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Upload these steps, and no others."""

    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The uploads took too long: no step is uploaded any more."""


@dataclass(frozen=True, slots=True)
class OfferPort:
    """Offer a master address for this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Resolve:
    """Claim this resume point; None: none any more."""

    request: ResolveRequest | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the processes of an attempt."""

    order: Start


@dataclass(frozen=True, slots=True)
class Leave:
    """The agent's end."""

    order: Exit


Task = Terminate | Stop | Flush | GiveUp | OfferPort | Resolve | Begin | Leave


def told(duty: DesiredState, answer: Answer, now: float) -> DesiredState:
    """An answer has come; the same duty where it is the one before."""
    digest, order = answer.digest, answer.order
    if digest == duty.seen:
        return duty
    duty = replace(duty, answer=answer, seen=digest)
    if isinstance(order, Hold):
        held = max(duty.held, (order.attempt, order.number))
        duty = replace(
            duty,
            held=held,
            linger_until=now + order.linger_seconds,
            kill_at=now + order.grace_seconds,
            flush_until=now + order.flush_seconds,
        )
    return duty


def offered(duty: DesiredState, offer: Offer) -> DesiredState:
    """A port was found."""
    return replace(duty, offer=offer)


def started(duty: DesiredState, attempt: int) -> DesiredState:
    """The processes of this attempt have been started."""
    return replace(duty, attempt=attempt, held=max(duty.held, (attempt, 0)), offer=None)


def released(duty: DesiredState) -> DesiredState:
    """It leaves: nothing is begun any more."""
    return replace(duty, answer=None)


def to_do(duty: DesiredState, situation: ActualState, now: float) -> tuple[Task, ...]:
    """What is to be done now, in this order."""
    order = duty.order
    match order:
        case None:
            return ()
        case Start():
            if order.attempt < duty.held[0] or order.attempt <= duty.attempt:
                return ()  # refused, or done
            return (Begin(order),) if situation.stopped else (Stop(),)
        case Hold():
            if order.attempt <= duty.attempt:
                return ()  # a late answer: that attempt is running already
            if not situation.stopped:
                return _ending(duty, situation, now)
            return (*_uploads(duty, situation, now), *_preparation(duty, order, situation, now))
        case Exit():
            # Nobody comes back from this: one that was said before the last Hold is refused.
            late = order.attempt > 0 and (order.attempt, order.number) < duty.held
            return () if late else (Leave(order),)


def gathers(duty: DesiredState, situation: ActualState) -> bool:
    """Nothing of an attempt runs, and the next one has not been ordered yet."""
    order = duty.order
    ahead = order is None or (isinstance(order, Hold) and order.attempt > duty.attempt)
    return ahead and situation.stopped


def phase(duty: DesiredState, situation: ActualState, now: float) -> Phase:
    """What a heartbeat says that this worker does."""
    if situation.alive or (duty.stops is not None and not situation.stopped):
        return "Running"
    return "Flushing" if _flushing(duty, situation, now) else "Idle"


def settled(found: Resolution | None, request: ResolveRequest) -> bool:
    """Whether the store has given the answer that it would give again."""
    if found is None or found.attempt != request.attempt or found.outcome in ASK_AGAIN:
        return False
    if request.look or found.outcome == "Looked":
        return request.look and found.owner != "Unknown"
    return not request.proof or found.resume == request.committed


def _ending(duty: DesiredState, situation: ActualState, now: float) -> tuple[Task, ...]:
    if situation.alive and now < duty.linger_until:
        return ()
    return (Terminate(),) if situation.alive and now < duty.kill_at else (Stop(),)


def _flushing(duty: DesiredState, situation: ActualState, now: float) -> bool:
    return duty.stops is not None and situation.uploading and now < duty.flush_until


def _uploads(duty: DesiredState, situation: ActualState, now: float) -> tuple[Task, ...]:
    if duty.stops is None:
        return ()
    if situation.uploading and now >= duty.flush_until:
        return (GiveUp(),)
    return (Flush(duty.flush),)


def _preparation(
    duty: DesiredState, hold: Hold, situation: ActualState, now: float
) -> tuple[Task, ...]:
    if _flushing(duty, situation, now):
        return ()
    new = duty.offer is None or duty.offer.attempt != hold.attempt
    offer = (OfferPort(hold.attempt),) if hold.offer and new else ()
    return (*offer, Resolve(hold.resolve))
