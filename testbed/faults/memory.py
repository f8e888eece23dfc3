"""Memory pressure inside a container: the kernel kills because its limit is reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken
from testbed.faults.processes import Process, processes

if TYPE_CHECKING:
    from testbed.cluster import Cluster

# Joins the cgroup of process $1 and eats until a victim's memory is gone; an ended process that
# nobody has waited for yet has none. The victims' scores are raised to the utmost and, meanwhile,
# those of all others lowered: a container has nearly the utmost itself (1000 less its share of the
# node's memory), so a victim that is still starting would outlive its larger parent.
# Does nothing where there is no limit: it would eat the machine.
_EAT = r"""
set -eu
main=$1; shift
v1=$(sed -n 's/^[0-9]*:memory://p' /proc/$main/cgroup)
if [ -n "$v1" ]; then
  cgroup=/sys/fs/cgroup/memory$v1; limit=$(cat $cgroup/memory.limit_in_bytes)
else
  cgroup=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$main/cgroup); limit=$(cat $cgroup/memory.max)
fi
if [ "$limit" = max ] || [ ${#limit} -gt 15 ]; then echo no-limit; exit; fi
declare -A spared
for other in $(cat $cgroup/cgroup.procs); do
  spared[$other]=$(cat /proc/$other/oom_score_adj 2>/dev/null) || continue
  echo 0 2>/dev/null > /proc/$other/oom_score_adj || true
done
for victim in "$@"; do unset "spared[$victim]"; echo 1000 > /proc/$victim/oom_score_adj; done
(
  echo $BASHPID > $cgroup/cgroup.procs
  printf -v piece '%*s' 1000000 ''
  while :; do
    for victim in "$@"; do read -r _ 2>/dev/null < /proc/$victim/maps || exit 0; done
    eaten+=("$piece")
  done
) >/dev/null 2>&1 || true
for other in "${!spared[@]}"; do
  echo "${spared[$other]}" 2>/dev/null > /proc/$other/oom_score_adj || true
done
"""


def exceed_memory_limit(
    cluster: Cluster,
    pod: str,
    *,
    victims: str = "",
    namespace: str = "default",
    container: str | None = None,
) -> list[Process]:
    """Fill a container's memory up to its limit until the kernel has killed in it.

    First go processes whose command line the pattern `victims` is found in. Returns them.
    ClusterBroken when the container has no memory limit, or nothing matches.
    """
    candidates = processes(cluster, pod, namespace=namespace, container=container)
    chosen = [each for each in candidates if re.search(victims, each.command)]
    if not chosen:
        raise ClusterBroken(f"no process of {namespace}/{pod} matches {victims!r}")
    numbers = [str(each.pid) for each in chosen]
    node = cluster.node(chosen[0].node)
    answer = node.run("bash", "-c", _EAT, "eat", numbers[0], *numbers)
    if "no-limit" in answer:
        raise ClusterBroken(f"the container of {namespace}/{pod} has no memory limit")
    return chosen
