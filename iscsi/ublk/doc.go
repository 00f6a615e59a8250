// Package ublk makes a block.Volume the block device /dev/ublkbN, by the ublk driver of
// Linux 6.5 and later (Documentation/block/ublk.rst). The kernel hands requests over
// through an io_uring, with the data in memory of this process.
//
//	wire.go            numbers and structures of linux/ublk_cmd.h
//	ring_unsafe.go     an io_uring
//	control.go         commands to /dev/ublk-control
//	device.go          Device: from the first command to the last
//	queue.go           the thread that takes requests and returns results
package ublk
