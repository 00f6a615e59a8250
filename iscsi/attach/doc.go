// Package attach makes a disk of package iscsi a block device of this host: /dev/ublkbN
// where the kernel has ublk, and /dev/nbdN through the kernel's NBD client elsewhere.
//
//	volume.go   an iscsi.Disk as a block.Volume
//	queue.go    its queues: parts of requests, repeats
//	attach.go   the choice of the driver, and the life of a device
package attach
