#!/bin/busybox sh
# The guest's first process. It loads siw, gives eth0 its addresses, says
# "guest: ready" on the console, and then runs what comes over the virtio port: a
# line is a number and a command, and what comes back is all that the command
# prints, and a line with the mark, the number and the exit code.
#
# On the kernel's command line: stag.v4=ADDRESS/LENGTH stag.v6=ADDRESS/LENGTH, or
# stag.root=DEVICE, whose file system becomes the root. Its /init is then the first process.
/bin/busybox --install -s /bin
export PATH=/usr/bin:/usr/sbin:/sbin:/bin HOME=/ LD_LIBRARY_PATH=/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu
PATH=$PATH:/storage/bin LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/storage/lib
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
ulimit -l unlimited
while read -r m; do
	insmod "/modules/$m" || echo "guest: insmod $m failed"
done </modules/order

# disk_modules loads the modules for disks and ext4.
disk_modules() {
	local m
	while read -r m; do insmod "/modules/$m" || return; done </modules/disk
}

# storage mounts the disk with the programs and modules for storage, and at /host the
# directory of the test that it shares. After that, modprobe loads modules.
storage() {
	disk_modules && mkdir -p /storage /lib/modules /host /var/lib/iscsi /var/lock/iscsi &&
		mount -t ext4 -o ro /dev/vda /storage && mount --bind /storage/lib/modules /lib/modules &&
		ln -sf /bin/busybox /sbin/modprobe && ln -sf /storage/etc/mke2fs.conf /etc/ &&
		modprobe -a 9pnet_virtio 9p && mount -t 9p -o trans=virtio,version=9p2000.L,ro host /host
}

for word in $(cat /proc/cmdline); do
	case $word in
	stag.v4=*) v4=${word#*=} ;;
	stag.v6=*) v6=${word#*=} ;;
	stag.root=*) root=${word#*=} ;;
	esac
done
if [ -n "$root" ]; then
	mkdir /root
	disk_modules && mount -t ext4 "$root" /root && exec switch_root /root /init
	poweroff -f
fi
/sbin/ip link set lo up
/sbin/ip link set eth0 up
/sbin/ip addr add "$v4" dev eth0
/sbin/ip -6 addr add "$v6" dev eth0 nodad
rdma link add siw0 type siw netdev eth0 || echo "guest: no siw0"

exec 3<>/dev/vport0p1
echo "guest: ready"
while IFS= read -r line <&3; do
	number=${line%% *}
	(eval "${line#* }") </dev/null >&3 2>&1 3>&-
	echo "@@@ $number $?" >&3
done
echo "guest: nobody talks to me any more"
poweroff -f
