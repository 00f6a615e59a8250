// Package bpf contains the steering program and the layouts that it shares with Go.
//
// The program in steer.bpf.c decides for every arriving packet whether the kernel or
// the engine gets the packet. abi.h defines the layouts, and abi.go mirrors them. The
// compiled objects are committed. `go generate` compiles them again with clang.
//
// These maps belong to the program: flows4 and flows6 (Key4 and Key6 to Flow), xsks
// (receive queue to AF_XDP socket), stats (Reason to a count per CPU), lanes (lane to the AF_XDP socket
// of its engine), options (one Options) and config (one Config). Two more maps belong
// to the adapter, and the program does not read them. tpt is the translation and
// protection table (package tpt describes its entries). att holds the page lists of
// tpt.
package bpf

// Debian keeps asm/types.h in these two include directories.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types steer steer.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
