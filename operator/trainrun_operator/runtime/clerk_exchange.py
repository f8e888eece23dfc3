"""The exchange with clerks of sweeps: the logs they have sent, and the orders for them.

Layer: runtime. The caller has authenticated the clerk, which speaks only for its own sweep. The
exchange holds a sweep's log as far as clerks have sent it, folded into a view. Invariants: a piece
that does not follow the known records changes nothing; if two clerks live for a moment, either may
send the next piece, since the log is the same; the log counts as known only when it is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from aiohttp import web

from trainrun.contract.wire import MalformedMessage
from trainrun.sweep.records import Targets
from trainrun.sweep.view import SweepView, fold
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import (
    REFUSED,
    VERSION,
    ClerkOrders,
    ClerkState,
)
from trainrun_operator.runtime.listener import read_shaped

SILENCE = 30.0
"""Seconds without a message after which the clerk is unknown: three times its longest wait."""


@dataclass(kw_only=True, eq=False, repr=False)
class ClerkExchange:
    """The exchange with the clerk of one sweep."""

    sweep_uid: str
    on_news: Callable[[], None]
    """Called when the log, the clerk's trouble, or what it has carried out changes."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.view = SweepView()
        """The log as far as it was sent, also while the clerk is silent."""
        self._position: int | None = None
        """Length of the log as reported by a clerk; None: not reported yet."""
        self._trouble: ClerkUnknown | None = None
        self._refused_at: float | None = None
        self._received_at = self.clock()
        self._orders = ClerkOrders()
        self.carried_out: Targets | None = None
        """The newest targets that a clerk has carried out in full."""
        self._closed = False
        self._turn = asyncio.Event()
        """Set, and replaced, whenever waiting requests must check again."""

    # ---------------------------------------------------------------- for the sweep's leader

    def log(self) -> SweepView | ClerkUnknown:
        """The view of the log if it is complete, else why not."""
        if self._position is None:
            return ClerkUnknown(message="the clerk has not called yet")
        silent = self.silent_for.total_seconds()
        if silent > SILENCE:
            return ClerkUnknown(message=f"the clerk has sent nothing for {silent:.0f} s")
        if self._trouble is not None:
            return self._trouble
        if self.view.position < self._position:
            message = f"reading the log: {self.view.position} of {self._position} records"
            return ClerkUnknown(reason="ReadingLog", message=message)
        return self.view

    @property
    def silent_for(self) -> timedelta:
        """Time since the clerk's last message, or since we began to listen."""
        return timedelta(seconds=self.clock() - self._received_at)

    @property
    def refused_for(self) -> timedelta:
        """Time since the store first refused a clerk, without a success since."""
        now = self.clock()
        return timedelta(seconds=now - (now if self._refused_at is None else self._refused_at))

    def order(self, orders: ClerkOrders) -> None:
        """Set the orders; a waiting request with other orders is answered at once."""
        if orders.digest != self._orders.digest:
            self._orders = orders
            self._wake()

    # ---------------------------------------------------------------- for the clerk's requests

    def hear(self, state: ClerkState) -> None:
        """Take a clerk's message."""
        before = self._reported_state
        self._received_at = self.clock()
        if self.view.position == state.sent_after and state.records:
            self.view = fold((entry.record for entry in state.records), self.view)
        # A new clerk has read less of the log than an earlier one reported.
        self._position = max(self._position or 0, state.position)
        self._trouble = state.trouble
        if self._trouble is None or self._trouble.reason != REFUSED:
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = self._received_at
        if state.trouble is None and state.seen == self._orders.digest:
            self.carried_out = self._orders.targets
        if self._reported_state != before:
            self.on_news()

    async def answer(self, state: ClerkState, *, wait: float) -> ClerkOrders:
        """The orders. Waits up to `wait` seconds until they differ from the ones that the clerk
        follows, or more of its log is wanted."""
        try:
            async with asyncio.timeout(wait):
                while not self._has_news_for(state):
                    await self._turn.wait()
        except TimeoutError:
            pass
        return self.orders

    @property
    def orders(self) -> ClerkOrders:
        """The current orders for a clerk."""
        return replace(self._orders, known=self.view.position)

    def close(self) -> None:
        """Answer all waiting requests at once."""
        self._closed = True
        self._wake()

    @property
    def _reported_state(self) -> tuple[object, ...]:
        return self.view.position, self._position, self._trouble, self.carried_out

    def _has_news_for(self, state: ClerkState) -> bool:
        behind = self.view.position < state.position
        return self._closed or behind or self._orders.digest != state.seen

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()


class ClerkExchanges:
    """The exchanges of all sweeps, by uid."""

    def __init__(self) -> None:
        self._exchanges: dict[str, ClerkExchange] = {}

    def add(self, exchange: ClerkExchange) -> None:
        """Serve the clerk of this sweep too."""
        self._exchanges[exchange.sweep_uid] = exchange

    def remove(self, sweep_uid: str) -> None:
        """The sweep is gone: its clerk is refused."""
        self._exchanges.pop(sweep_uid).close()

    def close(self) -> None:
        """Answer all waiting requests."""
        for exchange in self._exchanges.values():
            exchange.close()

    async def answer(self, body: bytes, *, sweep_uid: str | None, wait: float) -> web.Response:
        """The response to a clerk's message; `sweep_uid`: the sweep that the sender may speak for,
        None for any.

        200 orders · 400 malformed · 403 another sweep's · 410 the sweep is gone · 426 a version
        that is not served.
        """
        try:
            state = ClerkState.from_json(read_shaped(body))
        except MalformedMessage as error:
            return web.Response(status=400, text=f"malformed: {error}")
        if state.version != VERSION:
            text = f"this operator uses version {VERSION} with clerks, not {state.version}"
            return web.Response(status=426, text=text)
        if sweep_uid is not None and sweep_uid != state.sweep_uid:
            text = f"this pod is not a clerk of the sweep with uid {state.sweep_uid}"
            return web.Response(status=403, text=text)
        exchange = self._exchanges.get(state.sweep_uid)
        if exchange is None:
            text = f"the sweep with uid {state.sweep_uid} is gone: it was deleted, or is over"
            return web.Response(status=410, text=text)
        exchange.hear(state)
        orders = await exchange.answer(state, wait=wait)
        return web.Response(text=orders.to_json(), content_type="application/json")
