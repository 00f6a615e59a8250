// Package memgroup lets several processes of one user share registered memory. A connection
// of one process can then reach memory of another: the memory outlives neither process, and
// needs no copy.
//
//	registry.go  who is in the group: ranges of the table, numbers, protection domains
//	lock.go      locks on files, which the kernel drops when a process ends
//	group.go     a process's membership: Join, Start, Stop, Leave
//	list.go      the list of an owner's STags, as octets
//	serve.go     the owner's side: the list and the file of the region heap
//	ask.go       the other side: ask, check the answer, map the heap
//	resolve.go   Resolve: which owner to ask, and who waits for the answer
//
// The members share one table (tpt.Group). An access to memory of another member finds the
// entry, and the memory only after the owner has told it: Resolve asks the owner once for the
// list of all its STags, with the file of its region heap. Later accesses to any region of
// that heap need no question. The connection to the owner stays open. When it ends, the
// owner has ended, and the memory is dropped.
//
// Two rules decide what is shared. The region must be in a protection domain that both
// processes have joined by its name. And the memory must be in the region heap: other
// memory has no descriptor that could be passed. Only processes of the same user, and of
// root, get an answer. An owner's answer is checked as any input: the file must be sealed
// against shrinking and as long as the owner says.
package memgroup
