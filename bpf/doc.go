// Package bpf is the steering program and the layouts that it shares with Go.
//
// steer.bpf.c decides, for every packet that arrives, whether the kernel gets
// it or the engine. abi.h has the layouts, abi.go mirrors them. The objects
// that clang made of the program are committed; `go generate` makes them anew.
//
// Maps: flows (FlowKey to Flow), xsks (receive queue to AF_XDP socket), stats
// (Reason to a count per CPU), options (one Options) and config (one Config), and the adapter's: tpt, its
// translation and protection table (package tpt has the entry), and att, which
// that table's entries may point into. The program does not read these two.
package bpf

// The two include directories are where Debian keeps asm/types.h.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types steer steer.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
