# Makes disk.img: what the guest needs for iSCSI, iSER and block devices. prepare.sh reads
# this file. The guest mounts the disk at /storage (init.sh), so that a guest that tests
# something else boots without it.

# Packages whose programs only the guest runs. They are unpacked, and not installed:
# open-iscsi and tgt would start services on this machine.
storage_packages=(open-iscsi tgt libiscsi-bin fio nbd-client)

# Programs with their libraries, from these packages or from this machine.
storage_programs=(/sbin/iscsid /sbin/iscsiadm /usr/sbin/tgtd /usr/sbin/tgtadm /usr/bin/fio /sbin/nbd-client
	/usr/bin/iscsi-ls /usr/bin/iscsi-inq /usr/bin/iscsi-perf /usr/bin/iscsi-readcapacity16
	/sbin/mkfs.ext4 /sbin/fsck.ext4)

# Modules that rows load by modprobe: initiator, target, disks, what CHAP and digests
# compute with; bonds, and what stag asks about sockets.
storage_modules=(iscsi_tcp ib_iser sd_mod sg dm_multipath scsi_dh_alua iscsi_target_mod ib_isert
	target_core_file target_core_iblock target_core_user loop nbd null_blk ext4 crc32c_generic crc32c_intel
	crc_t10dif md5 sha1_generic sha256_generic sha3_generic 9p 9pnet_virtio bonding tcp_diag)

# disk lays out the disk's files in DIRECTORY, and packs them. Their versions are in
# DIRECTORY.versions.
disk() { # DIRECTORY KERNEL
	local root=$1 k=$2 f p
	fetched=$1.packages
	mkdir -p "$root"/{bin,etc,"lib/modules/$k"} "$fetched"
	storage_fetch "$1.debs"
	with_needs "$k" "${storage_modules[@]}" | while read -r f; do
		mkdir -p "$root$(dirname "${f#"$work/system"}")"
		cp "$f" "$root${f#"$work/system"}"
	done
	cp "$work/system/lib/modules/$k"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$k/"
	depmod -b "$root" "$k"
	for f in "${storage_programs[@]}"; do storage_program "$f" "$root"; done
	cp /etc/mke2fs.conf "$fetched/etc/iscsi/iscsid.conf" "$root/etc/"
	truncate -s $(($(du -sm "$root" | cut -f 1) + 24))M "$work/image/disk.img"
	mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$root" "$work/image/disk.img"
}

# storage_fetch unpacks the packages, and what they need and this machine has not.
storage_fetch() { # DIRECTORY
	local deb p
	mkdir -p "$1/partial"
	apt install --no-install-recommends --reinstall --download-only -o "Dir::Cache::archives=$1" "${storage_packages[@]}"
	for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$fetched"; done
	for p in "${storage_packages[@]}"; do
		dpkg-deb --show --showformat '${Package} ${Version}\n' "$1/$p"_*.deb
	done >"$work/storage.versions"
}

# storage_program copies a program to /bin of ROOT, and its libraries to /lib, but for
# those of the initramfs. The libraries of fio are 80 MB, which no initramfs should have.
storage_program() { # FILE ROOT
	local from=$1 library wants
	[ ! -e "$fetched$1" ] || from=$fetched$1
	[ -e "$from" ] || die 1 "$1 is in none of these packages: ${storage_packages[*]}"
	cp -L "$from" "$2/bin/"
	wants=$(LD_LIBRARY_PATH=$fetched/usr/lib/x86_64-linux-gnu:$fetched/lib/x86_64-linux-gnu ldd "$from")
	! grep 'not found' <<<"$wants" >&2 || die 1 "$1 needs libraries that are not there"
	while read -r library; do
		[ -e "$work/root${library#"$fetched"}" ] || cp -L --update "$library" "$2/lib/"
	done < <(grep -oE '/[^ ]+\.so[^ ]*' <<<"$wants")
}
