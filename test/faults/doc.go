// Package faults is a cable with faults, for tests against the kernel's TCP: it loses segments, corrupts octets,
// delivers segments twice, and delivers them late.
//
// A Cable is two veth pairs. Side A of the first and side B of the second are the two hosts. An XDP program on each
// of the two ends between them redirects everything that arrives there to the other, except for the faults of its
// Plan (faults.bpf.c). It passes late segments to a goroutine, which sends them some time later (late.go). The random
// numbers are seeded, so that a test can print its seed. The hosts live in real time, so the same seed hits other
// segments in another run.
package faults

// The two include directories are those in which Debian keeps asm/types.h.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types faults faults.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
