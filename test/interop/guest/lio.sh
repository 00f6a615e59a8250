#!/bin/sh
# LIO, Linux's target, in the guest. `storage` of the guest's init has run before.
#
#	lio.sh start                            loads modules, makes two disks of 64 MiB: memory
#	                                        (rd_mcp), and the file /disks/file (fileio)
#	lio.sh target IQN PORTAL [KEY=VALUE...] makes a target with both disks, as LUN 0 and 1.
#	                                        KEY is a file below its group, as in param/InitialR2T
#	lio.sh iser IQN PORTAL [KEY=VALUE...]   the same over iSER
#	lio.sh portal IQN PORTAL                gives the target another portal
#	lio.sh remove IQN PORTAL                ends its sessions and removes it
set -e
command=$1 name=$2 portal=$3
core=/sys/kernel/config/target/core
group=/sys/kernel/config/target/iscsi/$name/tpgt_1
case $command in
start)
	[ ! -e $core/fileio_0/file ] || exit 0
	modprobe -a target_core_file iscsi_target_mod crc32c_intel
	grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
	mkdir -p /disks $core/rd_mcp_0/memory $core/fileio_0/file
	mount -t tmpfs disks /disks
	truncate -s 64M /disks/file
	echo rd_pages=16384 >$core/rd_mcp_0/memory/control
	echo fd_dev_name=/disks/file,fd_dev_size=67108864,fd_buffered_io=1 >$core/fileio_0/file/control
	echo stag-memory >$core/rd_mcp_0/memory/wwn/vpd_unit_serial
	echo stag-file >$core/fileio_0/file/wwn/vpd_unit_serial
	echo 1 >$core/rd_mcp_0/memory/enable
	echo 1 >$core/fileio_0/file/enable
	echo 1 >$core/fileio_0/file/attrib/emulate_tpu
	;;
target | iser)
	mkdir -p "$group/lun/lun_0" "$group/lun/lun_1"
	ln -s $core/rd_mcp_0/memory "$group/lun/lun_0/disk"
	ln -s $core/fileio_0/file "$group/lun/lun_1/disk"
	shift 3
	for setting in attrib/authentication=0 attrib/generate_node_acls=1 attrib/cache_dynamic_acls=1 attrib/demo_mode_write_protect=0 "$@"; do
		echo -n "${setting#*=}" >"$group/${setting%%=*}"
	done
	if [ $command = iser ]; then
		# A portal begins with TCP, which siw needs the port for. So it begins in another
		# network namespace, where nobody else has the port.
		modprobe ib_isert
		unshare -n sh -c "ip link set lo up && ip addr add ${portal%:*}/32 dev lo && mkdir '$group/np/$portal'"
		echo 1 >"$group/np/$portal/iser"
	else
		mkdir "$group/np/$portal"
	fi
	echo 1 >"$group/enable"
	;;
portal)
	mkdir "$group/np/$portal"
	;;
remove)
	echo 0 >"$group/enable"
	for lun in "$group"/lun/lun_*; do
		rm "$lun/disk"
		rmdir "$lun"
	done
	rmdir "$group"/np/* "$group" "${group%/*}"
	;;
esac
