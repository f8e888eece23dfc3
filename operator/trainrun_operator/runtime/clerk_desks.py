"""The clerks of all sweeps of an operator, as their requests reach them.

Layer: runtime. Who speaks has been asked already; a clerk speaks for its own sweep alone.
"""

from __future__ import annotations

import json

from aiohttp import web

from trainrun.contract.wire import MalformedMessage
from trainrun_operator.core.sweep.clerking import VERSION, ClerkState
from trainrun_operator.runtime.clerk_desk import ClerkDesk
from trainrun_operator.runtime.shape import check_shape


class ClerkDesks:
    """By the uid of the sweep."""

    def __init__(self) -> None:
        self._desks: dict[str, ClerkDesk] = {}

    def add(self, desk: ClerkDesk) -> None:
        """Serve this sweep's clerk, too."""
        self._desks[desk.sweep_uid] = desk

    def remove(self, sweep_uid: str) -> None:
        """The sweep is gone: its clerk is refused."""
        self._desks.pop(sweep_uid).close()

    def close(self) -> None:
        """Answer all who wait."""
        for desk in self._desks.values():
            desk.close()

    async def answer(self, body: bytes, *, sweep_uid: str | None, wait: float) -> web.Response:
        """What the clerk who has sent this is told; `sweep_uid` is the one that it may speak for,
        None for any.

        200 orders · 400 malformed · 403 another sweep's · 410 the sweep is gone · 426 a version
        that is not served.
        """
        try:
            state = _read(body)
        except MalformedMessage as error:
            return web.Response(status=400, text=f"malformed: {error}")
        if state.version != VERSION:
            text = f"this operator speaks version {VERSION} with clerks, not {state.version}"
            return web.Response(status=426, text=text)
        if sweep_uid is not None and sweep_uid != state.sweep_uid:
            text = f"this pod is no clerk of the sweep with uid {state.sweep_uid}"
            return web.Response(status=403, text=text)
        desk = self._desks.get(state.sweep_uid)
        if desk is None:
            text = f"the sweep with uid {state.sweep_uid} is gone: it was deleted, or is over"
            return web.Response(status=410, text=text)
        desk.hear(state)
        orders = await desk.answer(state, wait=wait)
        return web.Response(text=orders.to_json(), content_type="application/json")


def _read(body: bytes) -> ClerkState:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"not JSON that can be read: {error}") from error
    check_shape(message)
    return ClerkState.from_json(message)
