#!/bin/sh
# Process 1 of the virtual machine: mounts, runs what it is told, powers off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 SEAWAY_BIN_DIR=/seaway/bin SEAWAY_CACHE=/seaway/cache
export RUST_BACKTRACE=0
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount --make-rshared /
mount --bind /seaway/busybox /usr/bin/busybox
hostname vm
ip link set lo up
echo "@@seaway up $(uname -r)"
for run in /seaway/runs/*; do
    name=${run##*/}
    echo "@@seaway begin $name"
    begun=$(cut -d . -f 1 /proc/uptime)
    sh "$run" </dev/null 2>&1
    status=$?
    echo "@@seaway end $name $status $(($(cut -d . -f 1 /proc/uptime) - begun))"
done
sync
busybox poweroff -f
