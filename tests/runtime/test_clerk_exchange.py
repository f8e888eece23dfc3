"""What a desk knows of what its clerk has done."""

from __future__ import annotations

from tests.clerk.exchanges import UID, session
from trainrun.sweep.records import Targets
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import ClerkOrders, ClerkState
from trainrun_operator.runtime.clerk_exchange import ClerkExchange


def test_orders_are_carried_out_once_a_clerk_goes_by_them_and_nothing_troubles_it() -> None:
    news: list[str] = []
    exchange = ClerkExchange(sweep_uid=UID, on_news=lambda: news.append("news"))
    targets = Targets(session=session(), cleared=(1, 2))
    exchange.order(ClerkOrders(targets=targets))
    away = ClerkUnknown(reason="StorageUnavailable", message="no route")

    exchange.hear(ClerkState(sweep_uid=UID, seen="older"))
    assert exchange.carried_out is None
    exchange.hear(ClerkState(sweep_uid=UID, seen=exchange.orders.digest, trouble=away))
    assert exchange.carried_out is None
    news.clear()
    exchange.hear(ClerkState(sweep_uid=UID, seen=exchange.orders.digest))
    assert (exchange.carried_out, len(news)) == (targets, 1)

    exchange.order(ClerkOrders(targets=Targets(session=session(), cleared=(1, 2, 3))))
    assert exchange.carried_out == targets, "what was done stays done"


def test_a_refusal_lasts_from_the_first_clerk_that_met_it_until_one_is_answered() -> None:
    now = 100.0
    exchange = ClerkExchange(sweep_uid=UID, on_news=lambda: None, clock=lambda: now)
    refused = ClerkUnknown(reason="StorageMisconfigured", message="InvalidAccessKeyId")
    lasted = []
    for trouble in (None, refused, refused, None, refused):
        exchange.hear(ClerkState(sweep_uid=UID, trouble=trouble))
        now += 60
        lasted.append(exchange.refused_for.total_seconds())
    assert lasted == [0, 60, 120, 0, 60]
