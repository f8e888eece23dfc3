"""The port that an agent offers for the rendezvous."""

from __future__ import annotations

import socket

import pytest

from trainrun.agent.processes import launches


def test_the_offered_port_lies_outside_the_ephemeral_range() -> None:
    low, high = launches.ephemeral_range()
    found = launches.pick_port()
    assert not low <= found <= high
    assert not low <= found + 1 <= high


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not launches.can_bind(server.getsockname()[1])


def test_a_port_is_not_offered_where_the_next_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "can_bind", lambda number: number % 2 == 0)
    with pytest.raises(launches.NoFreePort):
        launches.pick_port()
    monkeypatch.setattr(launches, "can_bind", lambda number: number not in range(20000, 25000))
    assert launches.pick_port() not in range(19999, 25000)


def test_no_free_port_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "can_bind", lambda _: False)
    why = r"outside the ephemeral range .*ip_local_port_range"
    with pytest.raises(launches.NoFreePort, match=why):
        launches.pick_port()
