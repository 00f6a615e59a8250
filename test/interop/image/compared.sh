#!/bin/bash
# Puts what only BenchmarkCompared needs into DIRECTORY, which the guest sees: the module of
# Linux's soft-RoCE driver rxe with all modules that it needs, its library, and UCX with its
# libraries if it is installed here.
#
#	compared.sh DIRECTORY
set -euo pipefail
to=$1
kernel=$(dpkg-query -W -f '${Depends}\n' linux-headers-amd64 | grep -oE 'linux-headers-[0-9][^ ,]*' | sed 's/linux-headers-//')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$to/modules" "$to/lib" "$to/bin"
chmod 755 "$work"
(cd "$work" && apt-get -q download "linux-image-$kernel") >/dev/null
dpkg-deb -x "$work"/linux-image-*.deb "$work/system"
depmod -b "$work/system" "$kernel"
modprobe -d "$work/system" -S "$kernel" --show-depends rdma_rxe | awk '$1 == "insmod" { print $2 }' | while read -r f; do
	cp "$f" "$to/modules/"
	echo "${f##*/}"
done >"$to/modules/order"
cp -L /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so "$to/lib/"
cp /etc/libibverbs.d/rxe.driver "$to/lib/"
if ucx=$(command -v ucx_perftest); then
	cp -L "$ucx" "$to/bin/"
	ldd "$ucx" | grep -oE '/[^ ]+\.so[^ ]*' | while read -r f; do
		case $f in */libc.so.* | */ld-linux*) continue ;; esac
		cp -L "$f" "$to/lib/"
	done
fi
