// Package nbd is a server of the NBD protocol (github.com/NetworkBlockDevice/nbd,
// doc/proto.md) over a block.Volume, and the protocol's numbers, which the client of
// package backend uses too.
//
//	wire.go       numbers, the header of a request
//	server.go     Server: connections of a listener
//	handshake.go  the fixed newstyle handshake
//	transmit.go   requests of a connection, and their replies
//	kernel.go     a volume as /dev/nbdN, through the kernel's client
package nbd
