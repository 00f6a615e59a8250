#!/bin/busybox sh
# The first process of the guest for block devices. It runs device.sh for each driver of the
# kernel's command line (stag.drivers=NAME,NAME), and then ends. A line with the mark, the
# driver, the exit code and the seconds follows what device.sh prints.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/usr/sbin:/sbin:/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
while read -r m; do
	insmod "/modules/$m" || echo "guest: insmod $m failed"
done </modules/order
ip link set lo up
echo "guest: ready"
drivers=$(sed -n 's/.*stag\.drivers=\([^ ]*\).*/\1/p' /proc/cmdline)
for driver in $(echo "$drivers" | tr , ' '); do
	begun=$(date +%s)
	/device.sh /stag "$driver" 2>&1
	echo "@@@ $driver $? $(($(date +%s) - begun))"
	dmesg -c | grep -E 'Call Trace|BUG|blocked for more' && echo "@@@ kernel $driver"
done
poweroff -f
