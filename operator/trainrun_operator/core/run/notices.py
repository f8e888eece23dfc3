"""Who is under notice, and how much time that leaves.

Layer: core.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.view import View, done, notice_of

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Notice
    from trainrun_operator.core.run.observation import WorkerFact

NOTICE_DEFAULT = timedelta(seconds=120)
"""Time left after a notice that names none: the two minutes that the large clouds give."""

Noticed = tuple[tuple["WorkerFact", "Notice"], ...]


def notices(view: View) -> Noticed:
    """The roster's workers under notice, by slot."""
    found = ((worker, notice_of(worker)) for worker in view.roster if worker is not None)
    return tuple((worker, notice) for worker, notice in found if notice is not None)


def noticed(view: View) -> Noticed:
    """Those that still have something to do."""
    return tuple(pair for pair in notices(view) if not done(view.joined(pair[0])))


def time_left(view: View) -> list[timedelta]:
    """Until each of them is taken away; below 0 where nobody knows why it is still there."""
    return [
        timedelta(seconds=notice.remaining)
        if notice.remaining is not None
        else NOTICE_DEFAULT - timedelta(seconds=notice.age)
        for _, notice in noticed(view)
    ]
