// Package ring does the index arithmetic of the four rings that an AF_XDP queue
// shares with the kernel. It maps nothing and makes no system calls.
//
// A ring is an array of slots, a power of two of them, between one producer and
// one consumer. Both indices are 32 bits wide, run freely and wrap; the slot of
// index i is i modulo the size; the ring holds producer minus consumer values.
// Each end here keeps its own index in private and a copy of the other end's. It
// touches the shared words only to publish a batch, or when its copy shows no
// value or no room. Cache lines therefore do not bounce once per frame.
//
// The caller supplies the memory: in production the kernel's mapping, in tests
// the Go heap, where the race detector sees every access.
package ring
