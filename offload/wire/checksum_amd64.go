package wire

import "golang.org/x/sys/cpu"

// canAddWide reports whether the processor adds 512 bits at a time. Few cards compute
// checksums for AF_XDP frames, so that the engine must sum every octet of most flows.
var canAddWide = cpu.X86.HasAVX512BW && cpu.X86.HasBMI2

// addWide returns the sum of b's little-endian 32-bit words. Zeros complete the last
// word. b must be shorter than 16 GiB.
//
//go:noescape
func addWide(b []byte) uint64
