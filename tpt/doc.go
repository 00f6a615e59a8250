// Package tpt implements the translation and protection table. The table maps an STag
// to octets of memory and decides about access to them. Every access of a peer or of a
// work request must pass Check against the adapter's one table, on whichever network
// interface it arrived.
//
//	Register, Reserve, AllocWindow
//	         -> an entry is published     register.go, reserve.go, window.go
//	Bind     -> a window of a region      window.go
//	Check    -> the octets, or a Fault    check.go
//	Invalidate, StartInvalidate, Deregister
//	         -> the entry is not valid    invalidate.go
//	         -> and no Reader uses it     epoch.go
//	         -> and the entry is free     retire.go, slots.go
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
// # Verbs and engines
//
// Some functions take a lock, wait for engines or allocate. Only verbs may call them:
// New, NewPD, FreePD, Register, Share, Reserve, Map, MapPages, AllocWindow, NextSTag,
// Reregister, Invalidate, Deregister, Join, JoinShared, Close, Stats, ReserveTags, Release.
//
// The other functions never wait, lock or allocate. An engine may call them within a
// step, between Enter and Leave:
//
//	Check, Memo.Check, Memo.Next        an access of a peer or a work request
//	StartRegister                       a work request that registers memory of Map
//	Bind                                a work request that binds or unbinds a window
//	StartLocalInvalidate                a work request that invalidates an entry
//	StartInvalidate                     a peer's Send with Invalidate
//	StartDeregister                     a work request or a message that ends an entry
//	Touch, Spend                        a message that uses an entry of one touch
//	Fail                                the memory of an entry has faulted
//	Tags.Bind, Tags.Revoke, Tags.Check  the commands of an iSCSI connection
//	Tags.Withdraw                       a command that another goroutine ends
//	Passed                              whether a Ticket has passed
//
// Functions that return a Ticket have an effect at once: the next Check sees it. But
// other engines may still be within a step in which an earlier Check succeeded. So the
// work request completes, and the message is delivered, when Passed returns true for the
// ticket. The engine's own step counts as well, so that is in a later step, unless the
// ticket is 0. All tickets of a step cost one shared write.
// No function that refuses changes an entry.
//
// # Windows
//
// A window is an entry that permits peers to access a part of a region. A window counts
// in the state word of its region exactly while it is valid. A region with bound windows
// can be neither invalidated, nor deregistered, nor registered again. A window has the
// translation of its region, and external memory is found through the region's entry:
// the region stays registered as long as the window is bound.
//
// # iSCSI
//
// The tag of an iSCSI command is the STag of an entry. A connection reserves its entries
// at login (ReserveTags; OwnTags for a connection without an engine). Bind then publishes an entry without a lock, and Revoke ends it,
// because only the connection's step writes these entries. An entry leads to the slot of
// its command and not to memory. RDMA and iSCSI never pass each other's entries: tags.go.
//
// # Page lists
//
// The memory of an entry is one slice, or a list of pages. The translation depends on
// the size of the list (US 7,299,266, FIG. 12 and 13):
//
//	direct        one slice: base is its place
//	first order   up to 512 pages: base is the index of the first one in att
//	second order  more: base is the index of a list of leaves, of 512 pages each, in att
//
// att is a second array beside the entries, in memory of the caller. An access to several
// pages has several pieces: Check decides about the whole access and returns the first
// piece, and Next returns the others. The pages stay in att until no Reader uses the
// entry any more. Page lists: pages.go. Places in att: att.go. Look-up: translate.go.
//
// Part of the API of stag: STag, WindowType. Package rdma has aliases of them.
//
// The table does no I/O. The caller supplies the table's memory. Only one process may
// write to it.
package tpt
