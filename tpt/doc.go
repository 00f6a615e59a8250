// Package tpt implements the translation and protection table. It maps an STag to
// octets of memory and decides about access to them. Every access that a peer or a
// work request asks for passes Check against one table, whichever network interface
// it came by.
//
//	Register -> an entry is published     register.go
//	Check    -> the octets, or a Fault    check.go
//	Invalidate, StartInvalidate, Deregister
//	         -> the entry is not valid    invalidate.go
//	         -> and no Reader uses it     epoch.go
//
// An entry is 64 octets, one cache line, laid out in bpf/abi.h (struct
// stag_entry), so that the table can be a BPF array that tools and programs
// read. Its first word, the state, says everything about the entry's life.
// A writer changes other fields only after it has set the entry to BUSY by
// compare-and-swap, which fails while the entry is valid. Readers read the state
// before and after the other fields.
//
// A passed check alone is not enough: the engine touches the octets after it.
// Therefore engines are Readers. The result of Check is valid until the Reader's
// Leave, and an invalidation is complete when every Reader has been quiet since.
//
// Part of the API of stag: STag. Package rdma has an alias of it.
//
// The table does no I/O, and gets the memory that it lies in from its caller.
// Only one process may write to it.
package tpt
