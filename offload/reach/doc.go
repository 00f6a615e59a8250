// Package reach reads and writes the memory of other processes, which the clients of a
// daemon register. A Space is the memory of one client. A Region is a part of a Space.
//
// The octets of a Region are an ordinary slice, so that the table of STags needs to know
// nothing. There are two kinds:
//
//   - Memory that is a shared file already (memfd, shm, hugetlbfs, a file) is mapped here,
//     too. An access is a load or a store, and costs what it costs in memory of
//     the own process.
//   - For all other memory the slice is a reservation: addresses without memory. Whoever
//     wants to access the octets finds the client's address by Find, and asks the kernel to
//     copy: Batch for writes, Stage for reads, Cell for atomic operations. Any other access
//     to a reservation faults, as an access to unmapped memory does.
//
// # The kernel's copy
//
// The copy is a pwrite or pread of the client's /proc/self/mem, which the client itself has
// opened. Such a descriptor belongs to the memory of that time. After an exec of the client
// it reaches nothing, so that a new program is never written to, also not a setuid one. A
// pid is never used, so that another process with the same pid is never written to.
// process_vm_writev is faster, but names the process by its pid.
//
// The times below are processor time in nanoseconds for each segment of 1448 octets, in
// order, on a busy virtual machine with two cores (Linux 6.18; best of 7). stage is the copy
// into one buffer, which the others contain, except for frames and reads.
//
//	segments  stage  pwrite  pwritev at   process_vm_writev   pread  preadv at   process_vm_
//	a call                   a page       buffer    frames           a page      readv
//	 1         65    1535    1839         1769      1855      1404   1613        1818
//	 4         59     762     832          621       673       673    703         626
//	11         60     577     562          437       464       503    473         400
//	22         59     515     458          345       344       438    379         313
//	45         57     538     466          340       334       454    384         302
//
// "At a page" means two buffers, the first of which ends at the end of a page of the client.
// The kernel then looks up each page once and not twice. Pieces of 64 octets at different
// places cost 1160 each by pwrite, and 520 each by process_vm_writev with 22 in a call. So
// process_vm would save a third of the time for long runs and a half for scattered pieces.
// The safety is worth more.
//
// The kernel copies even if the mapping gives the client no such right, because
// /proc/self/mem is also the memory of debuggers. NewRegion asks the kernel for the
// rights of the mappings and refuses others. A mapping that changes later is as with an RNIC:
// the client harms only itself. The kernel refuses to write to a shared mapping that is
// read-only.
//
// An operation that reads and writes (Cell) is not atomic with respect to the client's own
// processor. It is atomic with respect to all other operations of Cells of the same Space:
// what libibverbs calls IBV_ATOMIC_HCA. In mapped memory the operations are those of the
// processor.
//
// # Limits
//
// Memory for which the kernel must ask a file system in user space (FUSE) can make a copy
// wait. Shared files of such file systems are not mapped.
//
// Part of the API of stag: Space, Client.
package reach
