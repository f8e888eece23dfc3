"""The events of a sweep."""

from __future__ import annotations

from tests.support.sweeps import asked, begun, reported, told
from trainrun.sweep.records import Ask, End, Record
from trainrun.sweep.view import SweepView, fold
from trainrun_operator.cluster.sweeping.world import SweepReporter
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.sweep.boundary import CLERK_REFUSED, ClerkUnknown


class Listener:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.telling = SweepReporter(lambda _raw, event: self.events.append(event))

    def look(self, log: SweepView | ClerkUnknown) -> list[tuple[str, str]]:
        """Reasons and types of what is told now."""
        self.events.clear()
        self.telling.look({}, log)
        return [(event.type, event.reason) for event in self.events]


def test_a_life_is_told_as_it_happens_and_nothing_twice() -> None:
    listener, records = Listener(), list[Record]()

    def then(*more: Record) -> list[tuple[str, str]]:
        records.extend(more)
        return listener.look(fold(records))

    assert then() == []
    assert then(begun()) == [("Normal", "TakenUp")]
    assert then(asked(0), reported(0, s1=0.5)) == []
    assert then(told(0)) == [("Normal", "TrialSucceeded")]
    assert then() == []
    assert listener.look(ClerkUnknown(message="silent")) == []
    assert then(Ask(1, {"lr": 0.1}, fallback="the sampler has failed: boom")) == [
        ("Warning", "SamplerFailed")
    ]
    assert then(Ask(2, {"lr": 0.2}, first=2)) == [("Warning", "RecordsLost")]
    assert listener.events[0].message == (
        "trial 2 starts in the new folder 00002-i2: 00002 holds a trial whose records the log has "
        "lost, and stays unchanged"
    )
    assert then(told(1, state="Errored")) == [("Warning", "TrialErrored")]
    assert then(End("Succeeded", "AllTrialsEnded", "done")) == [("Normal", "AllTrialsEnded")]


def test_a_clerk_that_is_refused_is_told_once_until_it_is_taken() -> None:
    listener = Listener()
    refused = ClerkUnknown(reason=CLERK_REFUSED, message="exceeded quota: q")
    for unknown in (refused, refused, None, ClerkUnknown(message="no node"), refused):
        listener.telling.clerk({}, unknown)
    event = Event(type="Warning", reason="ClerkRefused", message="exceeded quota: q")
    assert listener.events == [event, event]


def test_what_stood_in_the_log_before_we_began_was_told_by_who_led_before() -> None:
    listener = Listener()
    assert listener.look(fold([begun(), asked(0), told(0, state="Errored")])) == []
