// Command bench measures the engine beside the kernel's own TCP, in one
// interleaved run: every case once per round, medians over the rounds, ratios
// to the kernel first. It makes its own namespaces and veth pairs and needs
// root.
//
//	go run ./test/bench
//	go run ./test/bench -rounds 9 -mtu 1500 -only "kernel > kernel,write"
//	go run ./test/bench -out test/bench/results/2026-01-31-veth.txt
//
// The cases:
//
//	kernel > kernel  a plain TCP stream, default offloads, with an XDP program
//	                 that passes everything on both ends
//	engine > engine  both ends taken over
//	kernel > engine  the sender is a plain kernel socket, its checksums in software
//	engine > kernel  the receiver is one
//
// and messages of 64 KiB by verbs between two adapters, 64 outstanding:
//
//	write engine       RDMA Writes, a Send without octets behind each 16th
//	write no CRC       the same without the CRC of FPDUs
//	read engine        RDMA Reads; counted by who reads
//	send engine        Sends into posted receives
//	... kernel port    the same over kernel sockets, on a pair as kernel > kernel's
//
// each with the receive processing of the veth pair on the sender's back and
// in threads of its own (threaded NAPI). The setting in which the kernel's TCP
// does better is what the ratios refer to. Nobody fills or reads the octets
// beyond what moving them takes: the source of a plain engine sends its frames
// as they are, the sink counts; the kernel's programs write and read one
// buffer again and again; verbs move memory to memory, 4 MiB of it in turn.
//
// Both hosts are this one process. Two would let Go use every core twice, one
// time each, so GOMAXPROCS is twice the number of cores here, unless it is set:
// else an application would wait for its own engine's system calls and for the
// other host's.
//
// Then take-overs: one after the other, and 64 at once.
package main
