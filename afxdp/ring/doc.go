// Package ring is the index arithmetic of the four rings that an AF_XDP queue
// shares with the kernel, and nothing else: no mapping, no system call.
//
// A ring is an array of slots, a power of two of them, between one producer and
// one consumer. Both indices are 32 bits wide, run freely and wrap; the slot of
// index i is i modulo the size; producer minus consumer is what is in the ring.
// This side keeps its own index to itself and a copy of the other side's, and
// touches the shared words only to publish a batch or when the copy says that
// nothing is left. That is what keeps cache lines from bouncing per frame.
//
// The memory is handed in. In production it is the kernel's mapping, in tests
// the Go heap, where the race detector sees every access.
package ring
