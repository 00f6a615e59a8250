#!/bin/bash
# Prepares what is taken from Debian 13: the guest for block devices, with a kernel that has
# ublk and with what makes and checks a file system, and iscsi-test-cu 1.20, which runs on this
# machine. Prints the directory where they are, and says on standard error what it does
# meanwhile.
#
#	vmlinuz         the kernel
#	initramfs.cpio  the guest's files; the test appends the stag command and device.sh
#	libiscsi/       iscsi-test-cu, a script that runs the program with the libraries beside it
#	versions        what is in it, one line each
#
# The packages are unpacked, and not installed. prepare.sh has installed what this script
# uses. STAG_INTEROP_CACHE and the exit codes are those of prepare.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${STAG_INTEROP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stag-interop}
label=trixie
. "$here/apt.sh"

# The suite with all libraries that it loads.
libiscsi=(libiscsi-bin libiscsi7 libcunit1 libgcrypt20 libgpg-error0 libibverbs1 librdmacm1t64 libnl-3-200 libnl-route-3-200 libc6)

modules=(ublk_drv nbd ext4 crc32c_generic crc32c_intel)
programs=(/sbin/mkfs.ext4 /sbin/fsck.ext4)

main() {
	[ "$(uname -m)" = x86_64 ] && command -v apt-get dpkg-deb modprobe depmod cpio xz >/dev/null ||
		die 2 "the guest is built from Debian's packages for amd64: run prepare.sh on Debian 12 first"
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9 # of two that prepare the second finds what the first has made
	image=$cache/stag-guest-trixie-$(cat "$here/trixie.sh" "$here/apt.sh" "$here/init-trixie.sh" | sha256sum | cut -c 1-12)
	[ -e "$image/versions" ] || build
	touch "$image"
	echo "$image"
}

# build makes the directory in one step, so that it is whole or not there.
build() {
	local package k f
	work=$(mktemp -d "$cache/stag-guest-unfinished.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/image"
	say "fetches the kernel of Debian 13"
	suites trixie
	package=$(apt apt-cache depends --no-recommends --no-suggests linux-image-amd64 | grep -oE 'linux-image-[0-9]\S*' | head -n 1)
	(cd "$work" && apt apt-get download "$package" >/dev/null)
	dpkg-deb -x "$work"/linux-image-*.deb "$work/system"
	k=${package#linux-image-}
	say "packs the guest with Linux $k"
	cp "$work/system/boot/vmlinuz-$k" "$work/image/vmlinuz"
	files "$work/root" "$k"
	(cd "$work/root" && find . | cpio -o -H newc --quiet) >"$work/image/initramfs.cpio"
	suite
	for f in "$work"/linux-image-*.deb "$work"/libiscsi/libiscsi-bin_*.deb; do
		dpkg-deb --show --showformat '${Package} ${Version}\n' "$f"
	done >"$work/versions"
	mv "$work/versions" "$work/image/"
	rm -rf "$image" # one that is not whole
	mv -T "$work/image" "$image"
	rm -rf "$work"
	trap - EXIT
}

# suite lays out iscsi-test-cu. The program runs with the C library of Debian 13, so the loader
# of that library starts it.
suite() {
	local f
	say "fetches iscsi-test-cu"
	mkdir -p "$work/libiscsi" "$work/image/libiscsi/lib"
	(cd "$work/libiscsi" && apt apt-get download "${libiscsi[@]}" >/dev/null)
	for f in "$work"/libiscsi/*.deb; do dpkg-deb -x "$f" "$work/libiscsi/system"; done
	cp -a "$work"/libiscsi/system/usr/lib/x86_64-linux-gnu/*.so* "$work/image/libiscsi/lib/"
	cp "$work/libiscsi/system/usr/bin/iscsi-test-cu" "$work/image/libiscsi/lib/"
	cat >"$work/image/libiscsi/iscsi-test-cu" <<-'END'
		#!/bin/sh
		lib=$(dirname "$0")/lib
		exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$lib/iscsi-test-cu" "$@"
	END
	chmod 755 "$work/image/libiscsi/iscsi-test-cu"
}

# files lays out the guest's root.
files() { # ROOT KERNEL
	local root=$1 k=$2 m f
	mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,etc,modules,usr/bin,usr/sbin}
	cp /bin/busybox "$root/bin/"
	cp /etc/mke2fs.conf "$root/etc/"
	install -m 755 "$here/init-trixie.sh" "$root/init"
	depmod -b "$work/system/usr" "$k"
	for m in "${modules[@]}"; do
		modprobe -d "$work/system/usr" -S "$k" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' >"$work/list"
	while read -r f; do
		m=$(basename "$f" .xz)
		xz -dc "$f" >"$root/modules/$m"
		echo "$m"
	done <"$work/list" >"$root/modules/order"
	for f in "${programs[@]}"; do
		cp -L "$f" "$root/sbin/"
		while read -r m; do
			mkdir -p "$root$(dirname "$m")"
			cp -L "$m" "$root$m"
		done < <(ldd "$f" | grep -oE '/[^ ]+\.so[^ ]*')
	done
}

main
