#!/bin/sh
# Loads what is needed to see the disks, and hands over to the system on them.
mount -t proc proc /proc
mount -t devtmpfs dev /dev
init=/seaway/init
for word in $(cat /proc/cmdline); do
    case $word in seaway.init=*) init=${word#*=} ;; esac
done
for module in $(cat /modules); do insmod "/lib/$module"; done
for wait in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/vdb ] && break
    sleep 1
done
mount -t ext4 /dev/vda /n
mount -t ext4 /dev/vdb /n/seaway
umount /proc /dev
exec switch_root /n "$init"
