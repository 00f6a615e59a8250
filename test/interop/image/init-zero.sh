#!/bin/busybox sh
# The first process of the guest for zero copy. It gives eth0 its addresses, says "guest: ready"
# on the console, and then runs what comes over the virtio port, as init.sh does: a line is a
# number and a command, and what comes back is all that the command prints, and a line with the
# mark, the number and the exit code.
#
# On the kernel's command line: stag.v4=ADDRESS/LENGTH stag.v6=ADDRESS/LENGTH
/bin/busybox --install -s /bin
export PATH=/usr/bin:/usr/sbin:/sbin:/bin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t bpf bpf /sys/fs/bpf
while read -r m; do
	insmod "/modules/$m" || echo "guest: insmod $m failed"
done </modules/order
v4=$(sed -n 's/.*stag\.v4=\([^ ]*\).*/\1/p' /proc/cmdline)
v6=$(sed -n 's/.*stag\.v6=\([^ ]*\).*/\1/p' /proc/cmdline)
/sbin/ip link set lo up
/sbin/ip link set eth0 up
/sbin/ip addr add "$v4" dev eth0
/sbin/ip -6 addr add "$v6" dev eth0 nodad
exec 3<>/dev/vport0p1
echo "guest: ready"
while IFS= read -r line <&3; do
	number=${line%% *}
	(eval "${line#* }") </dev/null >&3 2>&1 3>&-
	echo "@@@ $number $?" >&3
done
echo "guest: nobody talks to me any more"
poweroff -f
