// Package ring does the index arithmetic of the four rings that an AF_XDP queue shares
// with the kernel. It maps no memory and makes no system calls.
//
// A ring is an array of slots between one producer and one consumer. The number of
// slots is a power of two. Both indices are 32 bits wide, count up without limit, and
// wrap. The slot of index i is i modulo the number of slots. The ring holds producer
// minus consumer values.
//
// Producer and Consumer each keep a private copy of both indices. They access the
// shared words only to publish a batch, or when the copy shows no value or no room. The
// shared cache lines therefore do not move between processors for every frame.
//
// The caller supplies the memory. It is the kernel's mapping in production. In tests it
// is on the Go heap, where the race detector sees every access.
package ring
