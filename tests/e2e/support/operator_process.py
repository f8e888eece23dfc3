"""The operator's process in one of its pods: killed, stopped, measured from outside."""

from __future__ import annotations

import os
import re
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from testbed.armed import armed
from testbed.faults.processes import processes
from tests.e2e.support.installation import NAMESPACE, Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from testbed.kind_nodes import KindNode
    from testbed.nodes import Node

HEALTH_PORT = 8080


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorProcess:
    """Found beforehand; `about_to` sends a signal within a few milliseconds."""

    installation: Installation
    pod: str
    node: str
    pid: int
    """As the node sees it."""

    @classmethod
    def of(cls, installation: Installation, pod: str) -> OperatorProcess:
        """The process of this pod."""
        found = processes(installation.cluster, pod, namespace=NAMESPACE)
        (process,) = [each for each in found if "trainrun_operator" in each.command]
        return cls(installation=installation, pod=pod, node=process.node, pid=process.pid)

    @classmethod
    def leading(cls, installation: Installation) -> OperatorProcess:
        """The process of the leader."""
        return cls.of(installation, installation.wait_for_leader())

    @contextmanager
    def about_to(self, which: signal.Signals) -> Iterator[Callable[[], None]]:
        """Yield a function that sends it this signal, to hit a moment."""
        with armed(self._node, "kill", f"-{int(which)}", str(self.pid)) as send:
            yield send

    def freeze(self) -> None:
        """It stands still, with its connections open."""
        self._signal(signal.SIGSTOP)

    def is_alive(self) -> bool:
        """Whether it has not ended; asks its node, not the API server."""
        return "alive" in self._node.run(
            "sh", "-c", f"kill -0 {self.pid} 2>/dev/null && echo alive || echo gone"
        )

    def restarts(self) -> int:
        """How often the kubelet has started it again."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod}"
        (container,) = self.installation.cluster.api.get(path)["status"]["containerStatuses"]
        return int(container["restartCount"])

    def resident_bytes(self) -> int:
        """Its memory, libraries included."""
        status = self._node.run("cat", f"/proc/{self.pid}/status")
        found = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None, f"{self.pod} has ended"
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        """What it has used so far, in user mode and in the kernel."""
        fields = self._node.run("cat", f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metrics(self) -> Mapping[str, float]:
        """What /metrics says: `name{label="value"}` as Prometheus writes it -> value."""
        proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod}:{HEALTH_PORT}/proxy/metrics"
        text = self.installation.cluster.kubectl("get", "--raw", proxy)
        return {
            _written(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _signal(self, which: signal.Signals) -> None:
        self._node.run("kill", f"-{int(which)}", str(self.pid))

    @property
    def _node(self) -> Node | KindNode:
        return self.installation.cluster.node(self.node)


def _written(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
