package wire

import "golang.org/x/sys/cpu"

// canAddWide reports whether the processor adds 512 bits at a time. Every octet
// of a flow is summed once on each side, as no card does it for us here.
var canAddWide = cpu.X86.HasAVX512BW && cpu.X86.HasBMI2

// addWide is the sum of b's little-endian 32-bit words, the last of which zeroes
// complete. b is shorter than 16 GiB.
//
//go:noescape
func addWide(b []byte) uint64
