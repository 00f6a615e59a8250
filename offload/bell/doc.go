// Package bell has bells: pages of memory with which another process tells an adapter that
// it has posted work requests to queues in shared memory (package work).
//
//	other process: store the tail of the ring, set the bit of the queue, read asleep
//	adapter:       take the bits, call ring for each
//
// A page has 4096 octets. All numbers have the byte order of the machine. Offsets are in
// octets. Fields without a name are 0.
//
//	 0  asleep u32      written by the adapter
//	 4  generation u32  not used by the adapter
//	 8  gone u32        not used by the adapter
//	64  504 words u64   bit i is bit i%64 of word i/64
//
// The other process stores the tail of a ring with memory_order_release, sets the bit of the
// queue with an atomic or, and then loads asleep, both with memory_order_seq_cst. If asleep
// is not 0, it writes to the eventfd of the bell. The adapter takes a word with an atomic
// exchange. Before the adapter sleeps, it stores asleep 1 and looks at the words once more,
// both with memory_order_seq_cst. At least one side therefore sees what the other has
// stored.
//
// The adapter trusts nothing of a page. The other process can cause only calls of ring for
// any bit, and wake-ups. The adapter never reads the eventfd, because the other process
// could make that read wait for ever. An edge-triggered epoll tells of writes.
package bell
