"""What an agent under a notice does on its own rules, and when."""

from __future__ import annotations

import pytest

from trainrun.agent import shutdown
from trainrun.contract.answer import OnNotice, RunSettings


def settings(on_notice: OnNotice = "Auto", *, flush_timeout: float = 30.0) -> RunSettings:
    return RunSettings(
        on_notice=on_notice,
        flush_timeout=flush_timeout,
    )


@pytest.mark.parametrize(
    ("on_notice", "asks", "signals"),
    [
        ("Auto", False, True),
        ("Auto", True, False),
        ("Signal", True, True),
        ("Signal", False, True),
        ("AskScript", False, False),
        ("Stop", False, False),
    ],
)
def test_who_gets_sigterm(on_notice: OnNotice, asks: bool, signals: bool) -> None:
    assert shutdown.gives_sigterm(settings(on_notice), asks=asks) is signals


@pytest.mark.case(
    "nodes", "A worker gets a notice, and its agent reaches no operator", counted="maxPreemptions"
)
@pytest.mark.parametrize(
    ("answered", "now", "out"),
    [
        (99.0, 104.9, False),
        (99.0, 105.0, True),  # never since the notice at 100
        (101.0, 115.9, False),
        (101.0, 116.0, True),  # it has heard of the notice, and then fell silent
    ],
)
def test_when_no_operator_is_reached(answered: float, now: float, out: bool) -> None:
    found = shutdown.out_of_reach(noticed=100.0, grace=30.0, answered=answered, now=now)
    assert found is out


def test_a_short_grace_is_not_spent_on_waiting_for_an_answer() -> None:
    assert shutdown.out_of_reach(noticed=100.0, grace=8.0, answered=90.0, now=102.0)


@pytest.mark.parametrize(("flush_timeout", "time"), [(30.0, 15.0), (2.0, 18.0)])
def test_a_part_of_the_time_is_kept_for_uploads(flush_timeout: float, time: float) -> None:
    assert shutdown.time_to_end(settings(flush_timeout=flush_timeout), left=20.0) == time
