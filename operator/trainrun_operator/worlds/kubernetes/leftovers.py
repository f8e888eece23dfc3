"""Workers that another holder of the run had made before we took the run over: deleted.

Layer: worlds/kubernetes. They do not know whom to call, nor do we know them from strangers, so they
would train and hold their GPUs for ever. Invariant: only pods that the run owns, in its own
namespace, and that are older than the taking over; whoever has copied a worker since then keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, PodFact
from trainrun_operator.worlds.kubernetes.run_object import LedVersion


def leftovers(run: LedVersion, strangers: Iterable[PodFact]) -> tuple[PodFact, ...]:
    """Those of the strangers that were workers of the run before its holder took it over."""
    since = run.status.taken_over
    if since is None:
        return ()
    return tuple(
        pod
        for pod in strangers
        if pod.owner_uid == run.uid and pod.namespace == run.namespace and pod.created <= since
    )


def holds_something(pod: PodFact) -> bool:
    """Nobody has deleted it yet, and it has not ended."""
    return pod.deletion is None and pod.phase not in ENDED
