"""The configuration files of a node: containerd, CNI, kubelet, kube-proxy, first process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from testbed.binaries import SHIM, binary
from testbed.images import PAUSE_IMAGE
from testbed.packages import SUPERUSER_PATH

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.addresses import Addresses, NodeAddresses

CONTAINERD_ROOT = "containerd"
_CONTAINERD = """
version = 3
root = "{root}"
state = "/run/containerd-state"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  # Root without CAP_SYS_RESOURCE, as in some virtual machines, may not lower the score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{cni}"
"""
# The mounts are the node's own and go with it. A tmpfs hides the sockets of other nodes, and with
# it go the address leases of pods when the power goes. The daemons are started before SIGCHLD is
# ignored, which they would inherit; from then on the kernel reaps what they leave behind.
_INIT = """
set -eu
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
# What these programs write into fixed places stays on the node, too.
for place in /var/log /var/lib/cni /var/lib/kubelet; do
  mkdir -p "$place" "{folder}/host$place"
  mount --bind "{folder}/host$place" "$place"
done
hostname {name}
echo 1 > /proc/sys/net/ipv4/ip_forward
export PATH={tools}:{path}
containerd -c {folder}/containerd.toml >> {logs}/{name}-containerd.log 2>&1 &
for _ in $(seq 1 500); do [ -S /run/containerd.sock ] && break; sleep 0.02; done
bash {folder}/kubelet.sh >> {logs}/{name}-kubelet.log 2>&1 &
{kube_proxy} --config {folder}/kube-proxy.yaml >> {logs}/{name}-kube-proxy.log 2>&1 &
trap '' CHLD
exec -a "trainrun-node {folder}" sleep infinity
"""
# By itself, so that a kubelet that was killed can be started again.
_KUBELET = """
echo $$ > /run/kubelet.pid
exec {kubelet} --config {folder}/kubelet.yaml --kubeconfig {kubeconfigs}/{name} \\
  --hostname-override {name} --node-ip {ip} --root-dir {folder}/kubelet \\
  --cert-dir {folder}/certificates
"""


def write_node_files(folder: Path, state: Path, addresses: Addresses, node: NodeAddresses) -> None:
    """Write all files of a node into its folder."""
    logs, kubeconfigs = state / "logs", state / "kubeconfigs"
    cni = folder / "cni"
    cni.mkdir(parents=True, exist_ok=True)
    (folder / "resolv.conf").write_text(f"nameserver {addresses.host}\n")
    (cni / "10-pods.conflist").write_text(json.dumps(_cni(node)))
    (folder / "containerd.toml").write_text(
        _CONTAINERD.format(root=folder / CONTAINERD_ROOT, pause=PAUSE_IMAGE, cni=cni)
    )
    authority = state / "certificates" / "ca.crt"
    kubelet = _kubelet(folder, authority, addresses, node)
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet))
    kube_proxy = _kube_proxy(kubeconfigs / "proxy", addresses, node)
    (folder / "kube-proxy.yaml").write_text(yaml.safe_dump(kube_proxy))
    (folder / "kubelet.sh").write_text(
        _KUBELET.format(
            kubelet=binary("kubelet"),
            folder=folder,
            kubeconfigs=kubeconfigs,
            name=node.name,
            ip=node.ip,
        )
    )
    (folder / "init.sh").write_text(
        _INIT.format(
            name=node.name,
            tools=binary(SHIM).parent,
            path=SUPERUSER_PATH,
            folder=folder,
            logs=logs,
            kube_proxy=binary("kube-proxy"),
        )
    )


def _cni(node: NodeAddresses) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/ipam",
            "ranges": [[{"subnet": node.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}


def _kubelet(
    folder: Path, authority: Path, addresses: Addresses, node: NodeAddresses
) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{addresses.cgroup}/{node.name}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["none"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "podLogsDir": str(folder / "podlogs"),
        # A full disk of a developer's machine must neither evict pods nor delete images.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "clusterDNS": [addresses.host],
        "clusterDomain": "cluster.local",
        "resolvConf": str(folder / "resolv.conf"),
        # The lease is renewed every quarter of its duration, each second.
        "nodeLeaseDurationSeconds": 4,
        "nodeStatusUpdateFrequency": "1s",
        # An unchanged status is not sent each second: the lease shows that the node lives. Three
        # nodes would otherwise cost API server and operators 4 % of a core.
        "nodeStatusReportFrequency": "1m",
        "syncFrequency": "5s",
        "serializeImagePulls": False,
    }


def _kube_proxy(kubeconfig: Path, addresses: Addresses, node: NodeAddresses) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node.name,
        "mode": "nftables",
        "clusterCIDR": addresses.pods,
        "bindAddress": node.ip,
        # The limits of connection tracking cannot be set in a network namespace.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
