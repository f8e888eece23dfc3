"""The port that an agent offers for the rendezvous."""

from __future__ import annotations

import socket

import pytest

from trainrun.agent.processes import port


def test_the_offered_port_lies_outside_the_ephemeral_range() -> None:
    low, high = port.ephemeral_range()
    found = port.pick_port()
    assert not low <= found <= high
    assert not low <= found + 1 <= high


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not port.can_bind(server.getsockname()[1])


def test_a_port_is_not_offered_where_the_next_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "can_bind", lambda number: number % 2 == 0)
    with pytest.raises(port.NoFreePort):
        port.pick_port()
    monkeypatch.setattr(port, "can_bind", lambda number: number not in range(20000, 25000))
    assert port.pick_port() not in range(19999, 25000)


def test_no_free_port_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "can_bind", lambda _: False)
    with pytest.raises(port.NoFreePort, match=r"outside the ephemeral range .*ip_local_port_range"):
        port.pick_port()
