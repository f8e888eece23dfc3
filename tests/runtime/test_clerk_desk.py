"""What a desk knows of what its clerk has done."""

from __future__ import annotations

from tests.clerk.desks import UID, session
from trainrun.sweep.records import Targets
from trainrun_operator.core.sweep.boundary import ClerkUnknown
from trainrun_operator.core.sweep.clerking import ClerkOrders, ClerkState
from trainrun_operator.runtime.clerk_desk import ClerkDesk


def test_orders_are_carried_out_once_a_clerk_goes_by_them_and_nothing_troubles_it() -> None:
    news: list[str] = []
    desk = ClerkDesk(sweep_uid=UID, on_news=lambda: news.append("news"))
    targets = Targets(session=session(), cleared=(1, 2))
    desk.order(ClerkOrders(targets=targets))
    away = ClerkUnknown(reason="StorageUnavailable", message="no route")

    desk.hear(ClerkState(sweep_uid=UID, seen="older"))
    assert desk.carried_out is None
    desk.hear(ClerkState(sweep_uid=UID, seen=desk.orders.digest, trouble=away))
    assert desk.carried_out is None
    news.clear()
    desk.hear(ClerkState(sweep_uid=UID, seen=desk.orders.digest))
    assert (desk.carried_out, len(news)) == (targets, 1)

    desk.order(ClerkOrders(targets=Targets(session=session(), cleared=(1, 2, 3))))
    assert desk.carried_out == targets, "what was done stays done"


def test_a_refusal_lasts_from_the_first_clerk_that_met_it_until_one_is_answered() -> None:
    now = 100.0
    desk = ClerkDesk(sweep_uid=UID, on_news=lambda: None, clock=lambda: now)
    refused = ClerkUnknown(reason="StorageMisconfigured", message="InvalidAccessKeyId")
    lasted = []
    for trouble in (None, refused, refused, None, refused):
        desk.hear(ClerkState(sweep_uid=UID, trouble=trouble))
        now += 60
        lasted.append(desk.refused_for.total_seconds())
    assert lasted == [0, 60, 120, 0, 60]
