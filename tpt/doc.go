// Package tpt is the translation and protection table: which octets of memory
// an STag stands for, and who may do what with them. Every access that a peer
// or a work request asks for passes Check against one table, whichever network
// interface it came by.
//
//	Register -> an entry is published     register.go
//	Check    -> the octets, or a Fault    check.go
//	Invalidate, StartInvalidate, Deregister
//	         -> the entry is not valid    invalidate.go
//	         -> and nobody uses it still  epoch.go
//
// An entry is 64 octets, one cache line, laid out in bpf/abi.h (struct
// stag_entry), so that the table can be a BPF array that tools and programs
// read. Its first word, the state, says everything about the entry's life.
// Other fields are written only by whoever has taken the entry to BUSY by
// compare-and-swap, which nobody can while it is valid. Readers look at the
// state before and after.
//
// That a check has passed is not enough: the octets are touched after it.
// Therefore engines are Readers. What Check returned holds until the Reader's
// Leave, and an invalidation has ended when every Reader has been quiet since.
//
// Part of the API of stag: STag. Package rdma has an alias of it.
//
// The table does no I/O, and gets the memory that it lies in from its caller.
// Only one process may write to it.
package tpt
