"""An index of our pods and the nodes, as the informers last saw them: by run, and by node.

Layer: worlds/kubernetes. One informer for pods per watched namespace, one for nodes. A change wakes
only the runs that it concerns. Invariant: the signature counts before the label. Any user may give
a pod the labels of a worker, so a pod without a valid signature belongs to no run and wakes none;
only `foreign_pods` returns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.informer import EVERYWHERE, Informer, settled
from trainrun_operator.worlds.kubernetes.names import RUN_UID_LABEL
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact, node_fact
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact, pod_fact

MOST_VANISHED = 1_000
"""Most vanished pods that are kept."""

_ByRun = defaultdict[str, dict[str, PodFact]]
"""By the uid in the label, then by namespace and name."""


class PodIndex:
    """The caches of pods and nodes."""

    def __init__(
        self,
        api: KubeApi,
        *,
        namespaces: Sequence[str],
        nodes: bool,
        signed: Callable[[PodFact], bool],
        on_change: Callable[[str], None],
    ) -> None:
        """`namespaces`: those to watch, none for all; `signed` says whether an operator of this
        installation created a pod for the run of its label, called whenever a pod is seen;
        `on_change` gets the uid of a run."""
        self._signed = signed
        self._on_change = on_change
        self._by_run: _ByRun = defaultdict(dict)
        self._foreign_pods: _ByRun = defaultdict(dict)
        self._vanished: dict[str, PodFact] = {}
        """By uid, pods of ours that disappeared without a known deletion, in their last state."""
        self._gone_nodes: dict[str, NodeFact] = {}
        self._pods = {
            namespace: Informer(
                api,
                path=f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods",
                params={"labelSelector": RUN_UID_LABEL},
                project=self._looked_at,
                key=_key,
                on_change=self._pod_changed,
            )
            for namespace in (namespaces or (EVERYWHERE,))
        }
        self._nodes: Informer[NodeFact] | None = None
        if nodes:
            self._nodes = Informer(
                api,
                path="/api/v1/nodes",
                params={},
                project=node_fact,
                key=lambda node: node.name,
                on_change=self._node_changed,
            )

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them, for the caller to run and supervise; they list once before `follow`."""
        return (*self._pods.values(), *((self._nodes,) if self._nodes is not None else ()))

    def follow(self) -> None:
        """List again, and then see every change."""
        for informer in self.informers:
            informer.follow()

    @property
    def settled(self) -> bool:
        """Whether `settle` would not wait."""
        return any(informer.synced.is_set() for informer in self._pods.values()) and all(
            informer.listing.settled.is_set() for informer in self.informers
        )

    async def settle(self) -> None:
        """Wait until everything is listed that can be. Without permission to read nodes, runs are
        led without them."""
        await settled([informer.listing for informer in self._pods.values()])
        if self._nodes is not None:
            await self._nodes.listing.settled.wait()

    async def listed(self, namespace: str) -> None:
        """Wait until the pods of this namespace are listed, without a limit: before that its runs
        seem to have none."""
        if (informer := self._informer_of(namespace)) is not None:
            await informer.synced.wait()

    def of(self, run_uid: str) -> tuple[PodFact, ...]:
        """The pods of this run: those with its label and a valid signature."""
        return tuple(self._by_run.get(run_uid, {}).values())

    def foreign_pods(self, run_uid: str) -> tuple[PodFact, ...]:
        """The pods with this run's label that no operator of this installation created."""
        return tuple(self._foreign_pods.get(run_uid, {}).values())

    def vanished(self, run_uid: str) -> tuple[PodFact, ...]:
        """Pods of this run that disappeared without a known deletion: deleted by force, or without
        the marks of a worker. Each is kept until it is `looked_after`."""
        return tuple(pod for pod in self._vanished.values() if pod.run_uid == run_uid)

    def miss(self, pod: PodFact) -> None:
        """Add it to the vanished pods."""
        self._vanished[pod.uid] = pod
        if len(self._vanished) > MOST_VANISHED:  # left by runs that no operator leads
            del self._vanished[next(iter(self._vanished))]

    def looked_after(self, pod: PodFact) -> None:
        """Remove it from the vanished pods: its fate is known."""
        self._vanished.pop(pod.uid, None)

    def find(self, namespace: str, name: str) -> PodFact | None:
        """The pod of this name, whether we created it or not."""
        informer = self._informer_of(namespace)
        return informer.get(f"{namespace}/{name}") if informer is not None else None

    def node(self, name: str) -> NodeFact | None:
        """The node as it is, or was when it was deleted; None: unknown."""
        if self._nodes is None or not name:
            return None
        return self._nodes.get(name) or self._gone_nodes.get(name)

    def learn(self, raw: dict[str, Any]) -> bool:
        """Store the API server's answer to a write; False if it is not a pod of a run of ours."""
        informer = self._informer_of(raw["metadata"]["namespace"])
        return informer is not None and informer.learn(raw)

    def forget(self, pod: PodFact) -> None:
        """Remove it: the API server reports that it is gone."""
        informer = self._informer_of(pod.namespace)
        if informer is not None:
            informer.forget(pod.uid)
            self.looked_after(pod)

    def _informer_of(self, namespace: str) -> Informer[PodFact] | None:
        """None: this namespace is not watched."""
        return self._pods.get(namespace) or self._pods.get(EVERYWHERE)

    def _looked_at(self, raw: dict[str, Any]) -> PodFact | None:
        fact = pod_fact(raw)
        return fact if fact is None or self._signed(fact) else fact.as_foreign()

    def _pod_changed(self, before: PodFact | None, after: PodFact | None) -> None:
        woken = set()
        if before is not None:
            _take(self._foreign_pods, before)
            if _take(self._by_run, before):
                woken.add(before.run_uid)
                self._miss(before, after)
        if after is not None and self._signed(after):
            self._by_run[after.run_uid][_key(after)] = after
            self.looked_after(after)  # it may have lost its marks for a while
            woken.add(after.run_uid)
        elif after is not None:
            self._foreign_pods[after.run_uid][_key(after)] = after
        if before is not None:
            self._forget_node(before.node)
        for uid in woken:
            self._on_change(uid)

    def _miss(self, before: PodFact, after: PodFact | None) -> None:
        """Keep a pod as vanished if it is no longer a worker of its run and was not deleted."""
        stays = after is not None and self._signed(after) and after.run_uid == before.run_uid
        if not stays and before.deletion is None:
            self.miss(before)

    def _node_changed(self, before: NodeFact | None, after: NodeFact | None) -> None:
        node = after or before
        assert node is not None, "a change has a before or an after"
        runs = self._runs_on(node.name)
        self._gone_nodes.pop(node.name, None)
        if after is None and runs:
            self._gone_nodes[node.name] = node.as_gone()
        for uid in runs:
            self._on_change(uid)

    def _forget_node(self, name: str) -> None:
        """Drop a deleted node once none of its pods is left."""
        if name in self._gone_nodes and not self._runs_on(name):
            del self._gone_nodes[name]

    def _runs_on(self, node: str) -> list[str]:
        # Nodes change rarely in what we look at: asking every pod is cheaper than a second index.
        return [
            uid
            for uid, pods in self._by_run.items()
            if any(pod.node == node for pod in pods.values())
        ]


def _take(pods: _ByRun, pod: PodFact) -> bool:
    """Remove it, and the run after its last pod; returns whether it was there."""
    of_run = pods.get(pod.run_uid, {})
    found = of_run.pop(_key(pod), None) is not None
    if found and not of_run:
        del pods[pod.run_uid]
    return found


def _key(pod: PodFact) -> str:
    return f"{pod.namespace}/{pod.name}"
