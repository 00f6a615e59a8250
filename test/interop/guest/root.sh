#!/bin/sh
# The first process of a machine whose root is a disk. It says what the root is, writes a
# file of 8 MiB to it, prints the file's SHA-256, and turns the machine off.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
grep ' / ' /proc/mounts
dd if=/dev/urandom of=/octets bs=1M count=8 conv=fsync 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
echo "sum: $(sha256sum </octets)"
mount -o remount,ro /
poweroff -f
