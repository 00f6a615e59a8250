// Package bpf contains the steering program and the layouts that it shares with Go.
//
// steer.bpf.c decides, for every packet that arrives, whether the kernel or the
// engine gets it. abi.h defines the layouts, and abi.go mirrors them. The compiled
// objects are committed; `go generate` compiles them again with clang.
//
// Maps: flows (FlowKey to Flow), xsks (receive queue to AF_XDP socket), stats
// (Reason to a count per CPU), lanes (lane to the AF_XDP socket of its engine),
// options (one Options) and config (one Config). Two more belong to the adapter:
// tpt, its translation and protection table (package tpt describes the entry), and
// att, which entries of that table may point into. The program does not read these
// two.
package bpf

// The two include directories are where Debian keeps asm/types.h.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types steer steer.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
