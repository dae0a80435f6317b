#!/bin/sh
# Runs what the machine is told, one after the other, and powers off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 SEAWAY_BIN_DIR=/seaway/bin SEAWAY_CACHE=/seaway/cache
export RUST_BACKTRACE=0
only=*
for word in $(cat /proc/cmdline); do
    case $word in seaway.run=*) only=???-${word#*=} ;; esac
done
mount --bind /seaway/busybox /usr/bin/busybox
echo "@@seaway up $(uname -r)"
for run in /seaway/runs/$only; do
    name=${run##*/}
    echo "@@seaway begin $name"
    begun=$(cut -d . -f 1 /proc/uptime)
    sh "$run" </dev/null 2>&1
    status=$?
    echo "@@seaway end $name $status $(($(cut -d . -f 1 /proc/uptime) - begun))"
done
sync
busybox poweroff -f
