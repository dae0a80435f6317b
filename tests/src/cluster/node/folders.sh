# Run inside a node's fresh namespaces, where all mounts are private.
# $1 is the node's folder on the machine.
set -eu
# The node's own /sys, so that /sys/class/net is that of its network; cgroups as they were.
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount -l /run/cgroup
mount -t bpf bpf /sys/fs/bpf
# Changes to /etc stay here.
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/etc-work" /etc
# Nor does a node have what the machine has there.
rm -rf /etc/cni
mkdir -p /etc/cni/net.d
rm -f /etc/resolv.conf
echo "nameserver $DNS" > /etc/resolv.conf
mount --bind "$1/lib" /var/lib
mount --bind "$1/log" /var/log
mount --bind "$1/opt" /opt
# As systemd leaves it: what is mounted here later is seen in containers that ask for it.
mount --make-rshared /
