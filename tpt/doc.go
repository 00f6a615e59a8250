// Package tpt implements the translation and protection table. The table maps an STag
// to octets of memory and decides about access to them. Every access of a peer or of a
// work request must pass Check against the adapter's one table, on whichever network
// interface it arrived.
//
//	Register -> an entry is published     register.go
//	Check    -> the octets, or a Fault    check.go
//	Invalidate, StartInvalidate, Deregister
//	         -> the entry is not valid    invalidate.go
//	         -> and no Reader uses it     epoch.go
//
// An entry is 64 octets long, one cache line. bpf/abi.h defines its layout (struct
// stag_entry), so that the table can be a BPF array that tools and programs read. The
// first word of an entry is its state. A writer must set the entry to BUSY before it
// changes other fields. The writer sets BUSY by a compare-and-swap, which fails while the
// entry is valid. Readers read the state before and after the other fields.
//
// A successful check is not enough, because the engine uses the octets after the check.
// Engines are therefore Readers. The result of Check is valid until the Reader's Leave.
// An invalidation is complete when every Reader has called Leave since.
//
// Part of the API of stag: STag. Package rdma has an alias of it.
//
// The table does no I/O. The caller supplies the table's memory. Only one process may
// write to it.
package tpt
