#!/bin/busybox sh
# stag attaches a disk in the guest: a file system, a target that dies in the middle, ends of
# all kinds. The target is stag's too, over the guest's loopback.
#
#	device.sh STAG DRIVER
#
# It prints a line for each step that was checked, and ends at the first that is wrong.
stag=$1 driver=$2
name=iqn.2026-01.test.stag:device url=iscsi://127.0.0.1/iqn.2026-01.test.stag:device/1
dir=/tmp/device mnt=/tmp/device/mnt
rm -rf $dir && mkdir -p $mnt && cd $dir || exit

say() { echo "device: $*"; }
fail() {
	echo "device: FAILED: $*"
	tail -n 5 $dir/*.log
	umount $mnt 2>/dev/null
	[ -z "$attached" ] || kill -9 "$attached"
	[ -z "$target" ] || kill -9 "$target"
	exit 1
}
until_true() { # WHAT COMMAND...
	local what=$1 turn
	shift
	for turn in $(seq 300); do
		"$@" && return
		usleep 100000
	done
	fail "$what"
}

serve() {
	$stag iscsi target --name $name --lun 1=file:$dir/disk --portal 127.0.0.1:3260 >$dir/target.log 2>&1 &
	target=$!
	until_true "the target does not begin" grep -q Ctrl-C $dir/target.log
}
attach() { # OPTION...
	: >attach.log
	: >attach.txt
	$stag iscsi attach $url --driver $driver "$@" >attach.txt 2>attach.log &
	attached=$!
	until_true "no device" grep -q Ctrl-C attach.txt
	device=$(sed -n '1s/ .*//p' attach.txt)
	sys=/sys/block/${device##*/}
}
ended() { # CODE: the process of attach has ended with it, and the device is gone
	wait $attached
	local code=$?
	attached=
	[ $code = "$1" ] || fail "attach has ended with $code, not with $1"
	gone
}
gone() {
	case $driver in
	ublk) until_true "$device is left" [ ! -e "$device" ] ;;
	nbd) until_true "$device is in use" [ ! -e "$sys/pid" ] && [ "$(cat $sys/size)" = 0 ] || fail "$device has $(cat $sys/size) sectors" ;;
	esac
}
# With a process that hangs, the row says where the kernel and stag's goroutines are.
watch() {
	sleep 400
	echo "device: no end after 400 s; the kernel's tasks, and the goroutines of stag:"
	for task in /proc/[0-9]*/task/*; do
		grep -q 'stag\|kblock\|nbd\|dd' $task/comm && cat $task/comm && cat $task/stack
	done
	killall -QUIT stag
	sleep 3
	cat $dir/*.log
}
has() { [ "$(cat "$sys/$1")" = "$2" ] || fail "$1 is $(cat "$sys/$1"), not $2"; }

watch &
watcher=$!
trap 'kill $watcher 2>/dev/null' EXIT
truncate -s 64M disk
dd if=/dev/urandom of=source bs=1M count=16 2>/dev/null
serve
attach
has size 131072
has ro 0
has queue/logical_block_size 512
has queue/write_cache "write back"
has queue/fua 1
[ "$(cat $sys/queue/discard_max_bytes)" -gt 0 ] || fail "no discard"
[ $driver != ublk ] || { has queue/rotational 0 && [ "$(cat $sys/queue/write_zeroes_max_bytes)" -gt 0 ] || fail "no write zeroes"; }
say "properties"

mkfs.ext4 -q $device && mount -t ext4 $device $mnt || fail "no file system"
for n in 1 2; do
	for part in 0 4 8 12; do dd if=source of=$mnt/$n.$part bs=1M count=4 skip=$part conv=fsync 2>>dd.log || echo "$n.$part" >>dd.failed; done
done &
writes=$!
usleep 300000
kill -9 $target
wait $target 2>/dev/null
usleep 500000
serve
wait $writes
[ ! -e dd.failed ] || fail "writes have failed"
until_true "the session does not log in again" grep -q "logged in again" attach.log
grep -q "requests wait" attach.log || fail "nobody has said that requests wait"
say "a target that died and began again"

$stag iscsi detach $device 2>refused.log && fail "a mounted device was detached"
grep -q "unmount it first" refused.log || fail "no reason why it was not detached"
umount $mnt && fsck.ext4 -f -n $device >fsck.log 2>&1 || fail "fsck"
echo 3 >/proc/sys/vm/drop_caches
mount -t ext4 $device $mnt || fail "mount"
for n in 1 2; do cat $mnt/$n.0 $mnt/$n.4 $mnt/$n.8 $mnt/$n.12 | cmp - source || fail "other octets come back"; done
rm $mnt/2.*
sync
before=$(du -k disk | cut -f 1)
fstrim $mnt || fail "fstrim"
[ "$(du -k disk | cut -f 1)" -lt $((before - 8192)) ] || fail "fstrim gave nothing back of $before KiB"
if command -v fio >fio.log; then # Debian 13's guest has none
	fio --name=verify --directory=$mnt --size=8m --rw=randwrite --bsrange=4k-64k --direct=1 --ioengine=libaio --iodepth=8 \
		--verify=crc32c --verify_fatal=1 --end_fsync=1 --fallocate=none >>fio.log 2>&1 || fail "fio"
	say "fio"
fi
umount $mnt
say "octets, fsck and fstrim"

$stag iscsi detach $url >detach.txt 2>&1 || fail "detach"
grep -q "$device is detached" detach.txt || fail "detach says nothing"
ended 0
[ -z "$(ls /run/stag/attach)" ] || fail "a record is left"
fsck.ext4 -f -n disk >fsck.log 2>&1 || fail "fsck of the medium"
say "detach"

attach --read-only
has ro 1
dd if=source of=$device bs=512 count=1 2>/dev/null && fail "a read-only device takes writes"
kill -INT $attached
ended 0
say "read only, and an interrupt"

attach
dd if=$device of=/dev/null bs=1M 2>/dev/null
dd if=source of=$device bs=1M oflag=direct 2>killed.log &
writes=$!
usleep 100000
kill -9 $attached
wait $writes
wait $attached 2>/dev/null
gone
attach
$stag iscsi detach --all >detach.txt 2>&1 || fail "detach --all after a kill"
ended 0
say "a process that was killed"

attach
mkfs.ext4 -q -F $device && mount -t ext4 $device $mnt || fail "no file system"
$stag iscsi detach --force $device >detach.txt 2>&1 || fail "detach --force"
wait $attached && fail "a device that was forced has ended with 0"
attached=
grep -q "while it was in use" attach.log || fail "nobody says that the device was in use"
umount $mnt
gone
say "a device in use that was forced"

attach --recovery 1s
kill -9 $target
wait $target 2>/dev/null
target=
# A device that has ended meanwhile is empty, which is no error of a read.
[ "$(dd if=$device bs=4k count=1 iflag=direct 2>/dev/null | wc -c)" = 0 ] || fail "a read without a target has succeeded"
ended 1
grep -q "session has ended" attach.log || fail "nobody says that the session has ended"
say "a target that does not come back"
