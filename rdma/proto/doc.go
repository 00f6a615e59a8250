// Package proto has the messages between the daemon and its clients. A client is a process
// that uses the daemon's adapter, such as a C program with the libraries of rdma/verbs.
//
// abi.h is the same for C, and says how the connections, the messages and the shared memory
// work. A test compares the two.
package proto
