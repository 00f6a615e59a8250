// Package unit is a SCSI logical unit: a disk as SPC-4 and SBC-3 describe it, over a
// Backend. A transport such as iSCSI makes a Nexus for each initiator port, fills a
// Task for each command, and calls Begin, moves the data, and calls Run. A unit starts
// no goroutine, takes no lock and reads no clock. Only the backend may block.
//
//	backend.go     what a unit needs of its medium
//	unit.go        Config, New, reset
//	nexus.go       initiator ports, unit attention conditions
//	task.go        Task, residuals
//	begin.go       the life of a command: Begin or Open, Lend, Run
//	table.go       a row for each command
//	access.go      target port groups and their access states (ALUA)
//	inquiry.go, vpd.go, mode.go, capacity.go, opcodes.go
//	               commands that describe the unit
//	loans.go       atomic commands beside writes into lent memory
//	extent.go, readwrite.go, verify.go, atomic.go, same.go, sanitize.go
//	               commands for the medium
//	media.go       loading, ejecting, starting and stopping
//	reserve.go, persistin.go, persistout.go
//	               reservations
//	held.go        what Reservation tells of reservations
//	order.go       the order of the tasks of a nexus
//	sense.go       reasons for CHECK CONDITION
//
// Part of the API of stag: Backend, Discarder, Zeroer, Mapper, ComparerAndWriter, Lender.
// Package backend has aliases of them.
package unit
