"""Signals to single processes in pods, sent from outside: nobody in the pod is asked or told."""

from __future__ import annotations

import contextlib
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.armed import armed
from testbed.errors import ClusterBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from testbed.cluster import Cluster

# A pod's processes are those whose cgroup names its uid, with dashes or, under systemd, without.
# One line each: pid, parent, cgroups, command line; all as the node sees them.
_LIST = r"""
for file in $(grep -slE "pod($1|$2)" /proc/[0-9]*/cgroup); do
  folder=${file%/cgroup}
  parent=$(sed -n 's/^PPid:\s*//p' $folder/status 2>/dev/null) || continue
  printf '%s\t%s\t%s\t%s\n' "${folder#/proc/}" "$parent" \
    "$(grep -oE '[0-9a-f]{64}' $file | head -1)" "$(tr '\0\n\t' '   ' < $folder/cmdline)"
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process in a pod."""

    node: str
    pid: int
    """As the node sees it."""
    parent: int
    container: str
    """The id of its container."""
    command: str


def processes(
    cluster: Cluster, pod: str, *, namespace: str = "default", container: str | None = None
) -> list[Process]:
    """The processes of a pod's containers (of one, if named), without what holds its namespaces."""
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    node, uid = found["spec"].get("nodeName"), found["metadata"]["uid"]
    if node is None:
        raise ClusterBroken(f"pod {namespace}/{pod} is on no node yet")
    ids = _container_ids(found, container)
    lines = cluster.node(node).run("bash", "-c", _LIST, "list", uid, uid.replace("-", "_"))
    rows = (line.split("\t", 3) for line in lines.splitlines())
    return [
        Process(node=node, pid=int(pid), parent=int(parent), container=of, command=command.strip())
        for pid, parent, of, command in rows
        if of in ids
    ]


def signal_processes(
    cluster: Cluster,
    pod: str,
    which: signal.Signals = signal.SIGKILL,
    *,
    matching: str = "",
    namespace: str = "default",
    container: str | None = None,
) -> list[Process]:
    """Send a signal to all processes of a pod whose command line the pattern is found in.

    By default to all of its processes. Returns them; ClusterBroken when there is none.
    """
    candidates = processes(cluster, pod, namespace=namespace, container=container)
    chosen = _matching(candidates, matching, f"{namespace}/{pod}")
    _send(cluster, chosen, which)
    return chosen


def kill(
    cluster: Cluster, pod: str, *, matching: str = "", namespace: str = "default"
) -> list[Process]:
    """SIGKILL, as `kill -9` and as the kernel does it."""
    return signal_processes(cluster, pod, matching=matching, namespace=namespace)


@contextlib.contextmanager
def about_to_kill(
    cluster: Cluster, pod: str, *, matching: str = "", namespace: str = "default"
) -> Iterator[Callable[[], None]]:
    """Yield a function that does so within milliseconds, to hit a moment or to time it."""
    candidates = processes(cluster, pod, namespace=namespace)
    chosen = _matching(candidates, matching, f"{namespace}/{pod}")
    with armed(cluster.node(chosen[0].node), *_signalling(chosen, signal.SIGKILL)) as strike:
        yield strike


def kill_together(
    cluster: Cluster, pods: Sequence[str], *, namespace: str = "default"
) -> list[Process]:
    """SIGKILL all processes of several pods at the same time, after all of them were found."""
    found = [each for pod in pods for each in processes(cluster, pod, namespace=namespace)]
    on = {each.node: [other for other in found if other.node == each.node] for each in found}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda chosen: _send(cluster, chosen, signal.SIGKILL), on.values()))
    return found


def freeze(cluster: Cluster, pod: str, *, namespace: str = "default") -> list[Process]:
    """SIGSTOP all processes of a pod: it hangs with open connections. `thaw` lets it go on."""
    return signal_processes(cluster, pod, signal.SIGSTOP, namespace=namespace)


def thaw(cluster: Cluster, pod: str, *, namespace: str = "default") -> list[Process]:
    """SIGCONT all processes of a pod."""
    return signal_processes(cluster, pod, signal.SIGCONT, namespace=namespace)


def _matching(candidates: Sequence[Process], pattern: str, of: str) -> list[Process]:
    """Those whose command line the pattern is found in; ClusterBroken when there is none."""
    chosen = [each for each in candidates if re.search(pattern, each.command)]
    if not chosen:
        commands = "; ".join(each.command for each in candidates) or "none at all"
        raise ClusterBroken(f"no process of {of} matches {pattern!r}: {commands}")
    return chosen


def _send(cluster: Cluster, chosen: Sequence[Process], which: signal.Signals) -> None:
    """Signal processes of one node."""
    cluster.node(chosen[0].node).run(*_signalling(chosen, which))


def _signalling(chosen: Sequence[Process], which: signal.Signals) -> Sequence[str]:
    """The command that signals these processes, on their node."""
    numbers = [str(each.pid) for each in chosen]
    # With a container's first process its others end, before it is their turn. That is no error of
    # bash's kill, as long as one was there; it is one of the program of that name.
    return ("bash", "-c", 'kill "$@"', "kill", f"-{int(which)}", *numbers)


def _container_ids(pod: dict[str, Any], container: str | None) -> set[str]:
    statuses = [
        status
        for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for status in pod["status"].get(kind, [])
        if container in {None, status["name"]}
    ]
    return {status.get("containerID", "").rpartition("/")[2] for status in statuses} - {""}
