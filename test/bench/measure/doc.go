// Package measure measures stag beside what it competes with, in one interleaved
// run: AF_XDP without a TCP, the kernel's TCP, stag over kernel sockets, and stag
// offloaded. It makes its own namespaces and veth pairs and needs root; only the
// table micro needs neither.
//
// A run has tables, a table has rows, a row is one case. Every row is measured
// once in each round, every other round in the opposite order, so that whatever
// else the machine does meets all of them alike. What is reported are medians
// over the rounds, first as ratios to the table's base, then absolutely, then
// the conditions. The goals in goal.go are computed from the tables.
//
// Both hosts are this one process. Two would let Go use every core twice, one
// time each, so GOMAXPROCS is twice the number of cores here, unless it is set:
// else an application would wait for its own engine's system calls and for the
// other host's.
package measure
