#!/bin/bash
# The network of this node's pods, as kindnet makes it elsewhere: CNI with the node's range of
# addresses, routes to the other nodes' ranges, and the node's address for what leaves the cluster.
set -u
export KUBECONFIG=/etc/kubernetes/kubelet.conf
columns='NAME:.metadata.name,PODS:.spec.podCIDR,AT:.status.addresses[?(@.type=="InternalIP")].address'

# No bridge: it would keep its address, and refuse every pod, when the node joins again with another
# range. Each pod has a link and a route of its own.
configure() {
  cat > /etc/cni/net.d/.pods <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp",
   "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "$1"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
  mv /etc/cni/net.d/.pods /etc/cni/net.d/10-pods.conflist
}

nft -f - <<END
table ip trainrun_pods {
  chain leaving {
    type nat hook postrouting priority srcnat;
    ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade
  }
}
END
while :; do
  kubectl get nodes --watch --no-headers --output custom-columns="$columns" | while read -r name range address; do
    case "$range$address" in *none*) continue ;; esac
    if [ "$name" = "$(hostname)" ]; then configure "$range"; else ip route replace "$range" via "$address"; fi
  done
  sleep 1
done
