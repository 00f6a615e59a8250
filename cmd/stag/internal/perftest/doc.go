// Package perftest has the messages by which the programs of perftest (ib_write_bw
// and so on) come to terms when they are started with -R. They were found by
// looking at what the programs of Debian 12 (perftest 4.5+0.17, which call their
// exchange 6.06) send, and at where their versions differ.
//
// # Connections
//
// All go to the one port, from the client to the server. The first is for
// control: it carries Sends only, and they alternate. The client sends one, the
// server answers by one of the same kind, and only then the next follows: both
// use the same buffer for both ways. The client then makes one more connection
// for each QP of the test, which carry the data. Nobody uses private data.
//
//	control   version          16 octets, see Version
//	          page size         4         a Number: the larger of both is used
//	          cache line        4         likewise
//	          MTU               2         see MTU
//	          Dest             56         all zero
//	data      the connections of all QPs
//	control   Dest             56         all zero
//	          Dest              one for each QP and both ends, see below
//	          ...               by the test
//
// A server listens for the data connections only when it has answered the first
// Dest: whoever comes too early is refused, and tries again.
//
// # Where the memory is
//
// Then come Dests of which those of a QP say where its memory is. Only that is
// looked at; some of them are sent again to say that something has been done.
//
//	write_bw, read_bw     every QP, every QP, QP 0
//	send_bw, send_lat     every QP, QP 0, every QP
//	write_lat, read_lat   QP 0, every QP, every QP, QP 0
//
// A QP's memory has room for a message of the largest size, and for a page of
// the agreed size if that is more. Messages of up to half a page are spread over
// it: each begins where the last ended, rounded up to a cache line, until one
// would not fit any more (see Stride).
//
// # The tests
//
// A Dest of QP 0 each way is written "sync", the five messages of a Report each
// way "report".
//
//	write_bw, read_bw       the client does all sizes; sync, report, sync
//	write_bw -b, read_bw -b each size: sync, both do it, with -a sync, report; sync
//	send_bw                 each size: sync, the client does it, with -a sync; sync
//	send_bw -b              each size: sync, both do it, report (not with -D),
//	                        with -a sync; sync
//	send_lat                each size: sync, both do it; sync
//	read_lat                the client does all sizes; sync
//	write_lat               both do all sizes
//
// In write_lat both ends Write in turn, the server first. Message n has n, modulo
// 256, as its last octet, and the other end waits for that octet in its memory
// to become n: there are no completions. Each size begins with 1 again.
//
// In send_bw over iWARP the receiver says how many Sends it has had by Writing
// that number into the sender's memory, which its Dest names: four octets, in
// the byte order of the machine. The sender keeps the number of Sends beyond that
// below the RX depth. In the Dests of write and read tests the same fields name
// the memory of the messages.
//
// # Versions
//
// Programs from 5.70 on speak this exchange; older ones are refused by newer.
// From 6.28 on there is another message behind the MTU in which options are
// compared, but only when both ends are that new. From 6.29 on a Dest has 64
// octets.
package perftest
