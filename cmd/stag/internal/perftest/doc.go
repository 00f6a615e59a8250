// Package perftest has the messages that the programs of perftest (ib_write_bw
// and so on) exchange before and after a test when they are started with -R. The
// formats come from captures of the programs of Debian 12 (perftest 4.5+0.17, whose
// exchange has version 6.06), and from the differences between versions.
//
// # Connections
//
// The client makes all connections, to one port of the server. The first
// connection is the control connection. It carries only Sends, in turn: the
// client sends a message, and the server answers with a message of the same kind.
// The next message follows only after the answer, because each end has one buffer
// for both directions. The client then makes one data connection for each QP of
// the test. Neither end uses private data.
//
//	control   version          16 octets, see Version
//	          page size         4         a Number: the larger of both is used
//	          cache line        4         a Number: the larger of both is used
//	          MTU               2         see MTU
//	          Dest             56         all zero
//	data      the connections of all QPs
//	control   Dest             56         all zero
//	          Dest              one for each QP and both ends, see below
//	          ...               by the test
//
// A server listens for the data connections only after it has answered the first
// Dest. A connection that arrives earlier is refused, and the client tries again.
//
// # Where the memory is
//
// The two ends then exchange Dests. The Dest of a QP says where the memory of the
// QP is. Only the memory fields matter. A Dest that is sent again only says that a
// step is done.
//
//	write_bw, read_bw     every QP, every QP, QP 0
//	send_bw, send_lat     every QP, QP 0, every QP
//	write_lat, read_lat   QP 0, every QP, every QP, QP 0
//
// A QP's memory has room for a message of the largest size, or for a page of the
// agreed size if the page is larger. Messages of up to half a page use the memory
// in turn: each begins where the previous one ended, rounded up to a cache line.
// After the last one that fits, the next begins at the start again (see Stride).
//
// # The tests
//
// In this table "sync" is a Dest of QP 0 in each direction, and "report" is the
// five messages of a Report in each direction.
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
// In write_lat both ends Write in turn, and the server begins. The last octet of
// message n is n modulo 256. The other end polls that octet in its memory until it
// is n, because a Write causes no completion there. Each size begins with n = 1.
//
// In send_bw over iWARP the receiver reports how many Sends have arrived: it
// Writes the number into the sender's memory. The number is four octets in the
// byte order of the receiver. The sender's Dest has the address and the key of
// that memory. The sender keeps the number of Sends that are not reported below
// the RX depth. In write and read tests the same fields of a Dest have the address
// and the key of the memory of the messages.
//
// # Versions
//
// Programs from version 5.70 on use this exchange, and refuse older programs. If
// both ends have version 6.28 or newer, they compare their options in a further
// message after the MTU. From 6.29 on a Dest has 64 octets.
package perftest
