#!/bin/sh
# open-iscsi in the guest. `storage` of the guest's init has run before.
#
#	openiscsi.sh start                                  loads modules, starts iscsid
#	openiscsi.sh login PORTAL TARGET TRANSPORT [KEY=VALUE...]
#	                                                    logs in, and prints the names of the disks
#	openiscsi.sh logout PORTAL TARGET                   logs out, and forgets the target
#
# KEY is a setting of iscsid.conf. TRANSPORT is tcp or iser.
command=$1 portal=$2 target=$3 transport=$4
node="iscsiadm -m node -T $target -p $portal"
case $command in
start)
	pidof iscsid >/dev/null && exit
	modprobe -a iscsi_tcp sd_mod crc32c_intel || exit
	mkdir -p /run/lock/iscsi /etc/iscsi/nodes /etc/iscsi/ifaces /etc/iscsi/send_targets
	echo InitiatorName=iqn.2026-01.test.guest:open-iscsi >/etc/iscsi/initiatorname.iscsi
	# A login that fails is not repeated for two minutes, which is the default.
	sed 's/^node.session.initial_login_retry_max.*/node.session.initial_login_retry_max = 1/' /storage/etc/iscsid.conf >/etc/iscsi/iscsid.conf
	iscsid
	;;
login)
	shift 4
	[ "$transport" != iser ] || modprobe ib_iser || exit
	$node -I "$([ "$transport" = tcp ] && echo default || echo "$transport")" -o new >/dev/null || exit
	for setting in "$@"; do set -- "$@" -n "${setting%%=*}" -v "${setting#*=}" && shift; done
	[ $# = 0 ] || $node -o update "$@" || exit
	$node --login >/tmp/login 2>&1 || { cat /tmp/login; exit 1; }
	for session in /sys/class/iscsi_session/session*; do
		[ "$(cat "$session/targetname")" != "$target" ] || break
	done
	for turn in $(seq 200); do
		disks=$(ls -d "$session"/device/target*/*/block/* 2>/dev/null | sed 's,.*/,,') && [ -n "$disks" ] &&
			for disk in $disks; do [ -b "/dev/$disk" ] || continue 2; done && break
		usleep 50000
	done
	echo $disks
	;;
logout)
	$node --logout && $node -o delete
	;;
esac
