#!/bin/sh
# Turns the Debian in $1 into a node for kind; $2 holds what is copied into it.
set -eu
root=$1
cp -a "$2/." "$root/"
# As the recipe of kind's base image does: a container has no devices and no consoles to start.
rm -f "$root"/lib/systemd/system/multi-user.target.wants/* "$root"/etc/systemd/system/*.wants/* \
  "$root"/lib/systemd/system/local-fs.target.wants/* "$root"/lib/systemd/system/basic.target.wants/* \
  "$root"/lib/systemd/system/sockets.target.wants/*udev* "$root"/lib/systemd/system/sockets.target.wants/*initctl* \
  "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
echo ReadKMsg=no >> "$root/etc/systemd/journald.conf"
ln -sf /usr/lib/systemd/systemd "$root/sbin/init"
systemctl --root="$root" --quiet enable kubelet containerd undo-mount-hacks trainrun-pods
systemctl --root="$root" --quiet mask systemd-binfmt
mkdir -p "$root/etc/kubernetes/manifests" "$root/opt/cni/bin" "$root/etc/cni/net.d"
cp /usr/lib/cni/host-local /usr/lib/cni/loopback /usr/lib/cni/portmap /usr/lib/cni/ptp "$root/opt/cni/bin/"
# The image that holds a pod is ours, and root without CAP_SYS_RESOURCE may not lower scores.
sed -i -e "s|sandbox_image = .*|sandbox_image = \"$3\"|" \
  -e 's|restrict_oom_score_adj = false|restrict_oom_score_adj = true|' "$root/etc/containerd/config.toml"
