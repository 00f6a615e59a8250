#!/bin/bash
# Prepares the guest of the interoperability matrix: Debian's kernel with its
# soft-iWARP driver, rping and perftest, as two files that QEMU boots, and a disk with
# what iSCSI needs. Prints the directory where they are, and says on standard error
# what it does meanwhile.
#
#	vmlinux         the kernel
#	initramfs.cpio  the files of every guest
#	disk.img        programs and modules for storage (disk.sh), which the guest mounts
#	                when a row needs them
#	versions        what is in it, one line each
#
# STAG_INTEROP_CACHE says where prepared guests are kept (default: stag-interop
# in the user's cache directory). One that fits is used again: same kernel, same
# scripts. Exit codes: 0; 1 something failed; 2 not a machine for this; 3 the
# mirror of Debian's packages cannot be reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/disk.sh"
cache=${STAG_INTEROP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stag-interop}

# What builds and runs the guest, and what runs in it. libc6-dev: where there is a
# gcc, Go builds with it, and wants the C library's headers.
packages=(linux-headers-amd64 gcc libc6-dev make xz-utils kmod cpio e2fsprogs qemu-system-x86 qemu-utils qemu-block-extra
	busybox-static
	iproute2 ethtool ibverbs-providers rdmacm-utils perftest wireshark-common tshark)

# Modules in the order of their loading; siw is built here.
modules=(virtio_pci virtio_net virtio_console crc32c_intel crc32c_generic libcrc32c configfs
	ib_core ib_cm iw_cm rdma_cm ib_uverbs rdma_ucm sch_netem sch_ingress cls_matchall act_mirred ifb)

# Programs of the guest; their libraries come along. rping and perftest load
# libgcc_s and the provider only when they run.
programs=(/usr/bin/rping /usr/bin/ib_{write,read,send}_{bw,lat} /usr/bin/rdma /sbin/ip /sbin/tc /sbin/ethtool
	/usr/lib/x86_64-linux-gnu/libibverbs/libsiw-rdmav34.so /lib/x86_64-linux-gnu/libgcc_s.so.1)

say() { echo "prepare: $*" >&2; }
die() { # CODE TEXT...
	local code=$1
	shift
	say "$@"
	exit "$code"
}

main() {
	[ "$(uname -m)" = x86_64 ] && command -v apt-get dpkg-query >/dev/null ||
		die 2 "the guest is built from Debian's packages for amd64: run this on Debian 12"
	[ "$EUID" = 0 ] || die 2 "installing packages needs root: run it as root"
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9 # of two that prepare the second finds what the first has made
	if ! image=$(fitting) || ! [ -e "$image/versions" ]; then
		install
		image=$(fitting) || die 1 "linux-headers-amd64 is installed, and has no kernel's name in its dependencies"
		[ -e "$image/versions" ] || build "$image"
	fi
	touch "$image"
	echo "$image"
}

# kernel is the name of Debian's current kernel as far as it is installed here.
kernel() {
	dpkg-query -W -f '${Status} ${Depends}\n' linux-headers-amd64 2>/dev/null |
		grep '^install ok installed' | grep -oE 'linux-headers-[0-9][^ ,]*' | sed 's/linux-headers-//'
}

# fitting is the directory for the kernel that is installed and these scripts.
fitting() {
	local k sum
	k=$(kernel) || return
	sum=$(cat "$here/prepare.sh" "$here/disk.sh" "$here/init.sh" | sha256sum | cut -c 1-12)
	echo "$cache/stag-guest-$k-$sum"
}

# apt runs apt-get, and tells a mirror that is out of reach from other failures.
apt() {
	local out
	out=$(mktemp)
	if DEBIAN_FRONTEND=noninteractive apt-get -q -y -o APT::Update::Error-Mode=any "$@" >"$out" 2>&1; then
		rm "$out"
		return
	fi
	local why
	why=$(grep -E '^(E|Err|W):' "$out" | tail -n 1 || tail -n 1 "$out")
	grep -qE 'Could not (resolve|connect)|Temporary failure|Unable to connect|Connection (failed|timed out|refused)|Failed to fetch|Some index files failed' "$out" &&
		rm "$out" && die 3 "the package mirror cannot be reached, so nothing was tried: apt-get $1: $why"
	cat "$out" >&2
	rm "$out"
	die 1 "apt-get $1 failed: $why"
}

install() {
	say "installs Debian's packages"
	apt update
	apt install --no-install-recommends "${packages[@]}"
	apt install --no-install-recommends "$(source_package)"
}

source_package() { echo "linux-source-$(kernel | grep -oE '^[0-9]+\.[0-9]+')"; }

version() { dpkg-query -W -f '${Version}' "$1"; }

# build makes the directory in one step, so that it is whole or not there.
build() {
	local k source
	k=$(kernel)
	source=$(source_package)
	[ "$(version "linux-headers-$k")" = "$(version "$source")" ] ||
		die 1 "linux-headers-$k is $(version "linux-headers-$k") and $source is $(version "$source"): upgrade both to the same version"
	# Others that nobody has used for two weeks.
	find "$cache" -mindepth 1 -maxdepth 1 -type d -name 'stag-guest-*' -mtime +14 -exec rm -rf {} +
	work=$(mktemp -d "$cache/stag-guest-unfinished.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	say "unpacks the kernel $k"
	(cd "$work" && apt download "linux-image-$k")
	dpkg-deb -x "$work"/linux-image-*.deb "$work/system"
	tar -C "$work" -xJf "/usr/src/$source.tar.xz" --strip-components 1 \
		"$source/drivers/infiniband/sw/siw" "$source/include/uapi/rdma/siw-abi.h" "$source/scripts/extract-vmlinux"
	mkdir "$work/image"
	bash "$work/scripts/extract-vmlinux" "$work/system/boot/vmlinuz-$k" >"$work/image/vmlinux"
	say "builds siw"
	driver "$work/drivers/infiniband/sw/siw" "$k"
	say "packs the guest"
	files "$work/root" "$k"
	(cd "$work/root" && find . | cpio -o -H newc --quiet) >"$work/image/initramfs.cpio"
	say "packs the disk for storage"
	disk "$work/storage" "$k"
	for p in "linux-image-$k" perftest rdmacm-utils libibverbs1 qemu-system-x86; do
		echo "$p $(version "$p" 2>/dev/null || version "linux-headers-$k")"
	done >"$work/versions"
	cat "$work/storage.versions" >>"$work/versions"
	mv "$work/versions" "$work/image/"
	mv -T "$work/image" "$1"
	rm -rf "$work"
	trap - EXIT
}

# driver builds siw as the kernel has it, but for one thing: some of its constants
# become parameters of the module, with the constants' values to begin with.
driver() { # DIRECTORY KERNEL
	local name
	cd "$1"
	for name in mpa_crc_required mpa_crc_strict peer_to_peer; do
		sed -i "s/^extern const bool $name;/extern bool $name;/" siw.h
		sed -i "s/^const bool $name;/bool $name; module_param($name, bool, 0644);/" siw_main.c
	done
	sed -i 's/^u_char mpa_version = .*;/& module_param(mpa_version, byte, 0644);/' siw_main.c
	sed -i 's/^static __be16 rtr_type = .*;/& module_param(rtr_type, ushort, 0644);/' siw_cm.c
	[ "$(cat siw_main.c siw_cm.c | grep -c 'module_param(')" = 5 ] || die 1 "siw of $2 has other constants than 6.1's: look at them, and change prepare.sh"
	make -C "/usr/src/linux-headers-$2" M="$PWD" CONFIG_RDMA_SIW=m modules >make.log 2>&1 || {
		tail -n 20 make.log >&2
		die 1 "siw does not build against linux-headers-$2"
	}
	strip --strip-debug siw.ko
	cd "$here"
}

# files lays out the guest's root.
files() { # ROOT KERNEL
	local root=$1 k=$2 m f
	mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run,etc/libibverbs.d,usr/bin,usr/sbin}
	ln -s /run "$root/var"
	install_file /bin/busybox "$root"
	cp "$here/init.sh" "$root/init"
	chmod 755 "$root/init"
	depmod -b "$work/system" "$k"
	with_needs "$k" "${modules[@]}" >"$work/list"
	mkdir "$root/modules"
	while read -r f; do
		cp "$f" "$root/modules/"
		echo "${f##*/}"
	done <"$work/list" >"$root/modules/order"
	cp "$work/drivers/infiniband/sw/siw/siw.ko" "$root/modules/"
	echo siw.ko >>"$root/modules/order"
	with_needs "$k" virtio_blk ext4 | while read -r f; do
		cp "$f" "$root/modules/"
		echo "${f##*/}"
	done | grep -vxFf "$root/modules/order" >"$root/modules/disk"
	for f in "${programs[@]}"; do
		install_file "$f" "$root"
		while read -r f; do install_file "$f" "$root"; done < <(ldd "$f" | grep -oE '/[^ ]+\.so[^ ]*')
	done
	cp /etc/libibverbs.d/siw.driver "$root/etc/libibverbs.d/"
	cp -r /etc/iproute2 "$root/etc/"
	mkdir -p "$root/usr/lib"
	cp -r /usr/lib/tc "$root/usr/lib/" 2>/dev/null || true # netem's distributions
	echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
	echo '127.0.0.1 localhost' >"$root/etc/hosts"
}

# with_needs prints the files of modules and of all that they need, in the order of loading.
with_needs() { # KERNEL MODULE...
	local k=$1 m
	shift
	for m in "$@"; do
		modprobe -d "$work/system" -S "$k" --show-depends "$m" | awk '$1 == "insmod" { print $2 }'
	done | awk '!seen[$0]++'
}

# install_file copies a file, not a link to it, to the same place below ROOT.
install_file() { # FILE ROOT
	[ -e "$2$1" ] || { mkdir -p "$2$(dirname "$1")" && cp -L "$1" "$2$1"; }
}

main
