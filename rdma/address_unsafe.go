package rdma

import "unsafe"

// octetsAt returns the n octets of a region from first on. The region must have been
// registered as a slice of n octets.
func octetsAt(first *byte, n int) []byte { return unsafe.Slice(first, n) }
