package rdma

import "unsafe"

// octetsAt returns the n octets of a region from first on. They must have been a slice
// of that length when they were registered.
func octetsAt(first *byte, n int) []byte { return unsafe.Slice(first, n) }
