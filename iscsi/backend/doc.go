// Package backend has media for logical units (iscsi/unit): RAM, files and block
// devices, and exports of NBD servers.
//
//	ram.go    memory outside of the Go heap, which the target lends to the wire
//	file.go   a file or block device, with O_DIRECT for aligned requests
//	nbd.go, nbd_link.go
//	          an export of an NBD server
package backend
