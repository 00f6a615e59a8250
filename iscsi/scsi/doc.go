// Package scsi encodes the commands that an initiator sends to a disk and decodes the
// answers (SAM-5, SPC-4, SBC-3). It has no state and does no I/O.
//
//	cdb.go       a CDB, and the table of commands: direction, lengths, repetition
//	command.go   CDBs of SPC-4                 block.go     CDBs of SBC-3
//	status.go    status codes                  sense.go     sense data; codes.go the codes' names
//	inquiry.go   standard INQUIRY data         vpd.go       vital product data pages
//	capacity.go  READ CAPACITY, GET LBA STATUS limits.go    pages B0h, B1h and B2h
//	lun.go       logical unit numbers          mode.go      mode parameters
//	unmap.go     UNMAP parameter list          reserve.go   persistent reservations
//	alua.go      target port groups            residual.go  residual counts
//
// A Parse function takes the octets that arrived. A target cuts data at the allocation
// length, and old targets send shorter pages; fields that are not there are zero. The
// results do not alias the octets, unless the comment says so. All integers of SCSI are
// big-endian.
//
// Part of the API of stag: AccessState, ReservationType. Package iscsi has aliases of them.
package scsi
