// Package faults is a cable with faults, for tests against the kernel's TCP. The cable
// loses segments, corrupts octets, delivers segments twice, and delivers them late.
//
// A Cable is two veth pairs. Side A of the first pair and side B of the second pair are
// the two hosts. Each of the two inner ends has an XDP program, which redirects all
// arriving packets to the other inner end. The program applies the faults of its Plan
// (faults.bpf.c). It passes late segments to a goroutine, which sends them some time
// later (late.go). The random numbers are seeded, so that a test can print its seed.
// The hosts run in real time, so the same seed affects other segments in another run.
package faults

// Debian keeps asm/types.h in these two include directories.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types faults faults.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
