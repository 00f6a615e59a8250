// Package faults is a cable that a test can make bad, for tests against the
// kernel's TCP: it loses segments, spoils octets, delivers segments twice, and
// delivers them late.
//
// A Cable is two veth pairs. Side A of the first and side B of the second are
// the two hosts. An XDP program on each of the two ends between them lets
// everything that arrives there leave by the other, but for what its Plan says
// (faults.bpf.c). Segments that shall be late it leaves to a goroutine, which
// sends them some time later (late.go). Luck is seeded, so that a test can say
// what it had; as the hosts live in real time, the same seed meets other
// segments the next time.
package faults

// The two include directories are where Debian keeps asm/types.h.
//
//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types faults faults.bpf.c -- -O2 -g -mcpu=v2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
