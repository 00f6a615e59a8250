#!/bin/bash
# Prepares the machine for zero copy: the newest QEMU and the newest kernel of Debian 13's
# backports, whose virtio_net has AF_XDP zero copy in both directions (Linux 6.16 and later).
# Prints the directory where they are, and says on standard error what it does meanwhile.
#
#	vmlinuz         the kernel
#	initramfs.cpio  the guest's files; the test appends the programs of stag
#	qemu/           qemu-system-x86_64, a script that runs the program with the libraries and
#	                the firmware beside it
#	versions        what is in it, one line each
#
# The packages are unpacked, and not installed. prepare.sh has installed what this script
# uses. STAG_INTEROP_CACHE and the exit codes are those of prepare.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${STAG_INTEROP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stag-interop}
label=zero
. "$here/apt.sh"

modules=(virtio_net tcp_diag)
programs=(/sbin/ip /sbin/ethtool)

main() {
	[ "$(uname -m)" = x86_64 ] && command -v apt-get dpkg-deb modprobe depmod cpio xz >/dev/null ||
		die 2 "the guest is built from Debian's packages for amd64: run prepare.sh on Debian 12 first"
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9 # of two that prepare the second finds what the first has made
	image=$cache/stag-guest-zero-$(cat "$here/zero.sh" "$here/apt.sh" "$here/init-zero.sh" | sha256sum | cut -c 1-12)
	[ -e "$image/versions" ] || build
	touch "$image"
	echo "$image"
}

# build makes the directory in one step, so that it is whole or not there.
build() {
	work=$(mktemp -d "$cache/stag-guest-unfinished.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/image"
	say "fetches the kernel and QEMU of Debian 13's backports"
	suites trixie trixie-backports
	guest
	qemu
	mv "$work/versions" "$work/image/"
	rm -rf "$image" # one that is not whole
	mv -T "$work/image" "$image"
	rm -rf "$work"
	trap - EXIT
}

# fetched downloads the packages of a list with all that they need, whatever is installed
# here, and unpacks them. It prints nothing.
fetched() { # DIRECTORY PACKAGE...
	local d=$1 f
	shift
	mkdir -p "$d"
	rm -f "$work"/cache/archives/*.deb
	apt apt-get install --download-only -y --no-install-recommends -t trixie-backports -o Dir::State::status="$work/status" "$@" >/dev/null
	for f in "$work"/cache/archives/*.deb; do dpkg-deb -x "$f" "$d"; done
}

# guest lays out the kernel and the guest's files. The kernel for clouds has all drivers of
# virtio, and boots faster than the one for every machine.
guest() {
	local k f package root=$work/root
	package=$(apt apt-cache depends --no-recommends --no-suggests -t trixie-backports linux-image-cloud-amd64 | grep -oE 'linux-image-[0-9]\S*' | head -n 1)
	k=${package#linux-image-}
	for f in "$package" "${package/image/base}" "${package/image/binary}" "${package/image/modules}"; do
		(cd "$work" && apt apt-get download -t trixie-backports "$f" >/dev/null)
	done
	for f in "$work"/*.deb; do
		dpkg-deb -x "$f" "$work/system"
	done
	dpkg-deb --show --showformat '${Package} ${Version}\n' "$work"/"$package"_*.deb >"$work/versions"
	say "packs the guest with Linux $k"
	cp "$work/system/usr/lib/modules/$k/vmlinuz" "$work/image/vmlinuz"
	mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,etc,modules,usr/bin,usr/sbin}
	cp /bin/busybox "$root/bin/"
	install -m 755 "$here/init-zero.sh" "$root/init"
	depmod -b "$work/system/usr" "$k"
	for f in "${modules[@]}"; do
		modprobe -d "$work/system/usr" -S "$k" --show-depends "$f" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++' | while read -r f; do
		xz -dc "$f" >"$root/modules/$(basename "$f" .xz)"
		basename "$f" .xz
	done >"$root/modules/order"
	for f in "${programs[@]}"; do
		cp -L "$f" "$root/sbin/"
		ldd "$f" | grep -oE '/[^ ]+\.so[^ ]*' | while read -r l; do
			mkdir -p "$root$(dirname "$l")"
			cp -L "$l" "$root$l"
		done
	done
	(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/image/initramfs.cpio"
}

# qemu lays out QEMU. It runs with the C library of Debian 13, so the loader of that library
# starts it.
qemu() {
	local at=$work/qemu to=$work/image/qemu
	say "unpacks QEMU"
	fetched "$at" qemu-system-x86
	dpkg-deb --show --showformat '${Package} ${Version}\n' "$work"/cache/archives/qemu-system-x86_*.deb >>"$work/versions"
	mkdir -p "$to/lib" "$to/share"
	cp -a "$at"/usr/lib/x86_64-linux-gnu/*.so* "$to/lib/"
	cp "$at/usr/bin/qemu-system-x86_64" "$to/lib/"
	cp -rL "$at"/usr/share/{qemu,seabios}/. "$to/share/" 2>/dev/null || true # links to firmware that is not here
	[ -s "$to/share/bios-256k.bin" ] || die 1 "seabios of trixie-backports has no bios-256k.bin"
	cat >"$to/qemu-system-x86_64" <<-'END'
		#!/bin/sh
		at=$(dirname "$0")
		exec "$at/lib/ld-linux-x86-64.so.2" --library-path "$at/lib" "$at/lib/qemu-system-x86_64" -L "$at/share" "$@"
	END
	chmod 755 "$to/qemu-system-x86_64"
}

main
