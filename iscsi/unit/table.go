package unit

import (
	"encoding/hex"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// row is what the unit knows of one command.
type row struct {
	op   byte
	sa   int // service action; none: the operation code stands alone
	name string

	// usage has a 1 for each bit of the CDB that the unit takes (SPC-4 §6.35.3). In the
	// first octet and in a service action it has the value itself. Its length is the
	// length of the CDB.
	usage []byte
	flags flag

	// plan checks the CDB, and sets Dir, Want, lba and blocks. plan must not change the
	// unit. nil: the command has no data and nothing to check.
	plan func(*Unit, *Task) Sense
	// run executes the command. nil: nothing is left to do.
	run func(*Unit, *Task) Sense
}

// none is the service action of an operation code without service actions.
const none = -1

// flag is a property of a command.
type flag uint16

const (
	exclusive      flag = 1 << iota // run changes the unit, or must be atomic
	anyUnit                         // works for a LUN that has no unit
	noUA                            // a unit attention condition does not stop the command
	medium                          // needs a medium that is loaded
	writes                          // changes the medium
	free6                           // a reservation by RESERVE(6) of another nexus allows the command
	freePR                          // each persistent reservation allows the command
	readPR                          // a persistent reservation of a Write Exclusive type allows the command
	sanitized                       // works after a sanitize operation that has failed
	duringSanitize                  // works while a sanitize operation goes on
	atomically                      // no write into lent memory may come between the parts of run
	partial                         // uses the data that there are, if EDTL is less than the CDB demands
	inStandby                       // works through a target port in the state standby
	inUnavailable                   // works through a target port in any state
)

// Properties that occur together.
const (
	inquiry = anyUnit | noUA | free6 | freePR | sanitized | duringSanitize | anyPort
	anyPort = inStandby | inUnavailable
	reads   = medium | readPR
	stores  = medium | writes
	looks   = medium | freePR
)

// table has a row for each command.
var table = []row{
	{0x00, none, "TEST UNIT READY", usage("00 00 00 00 00 00"), looks, nil, nil},
	{0x03, none, "REQUEST SENSE", usage("03 01 00 00 ff 00"), inquiry | exclusive, planRequestSense, (*Unit).requestSense},
	{0x08, none, "READ(6)", usage("08 1f ff ff ff 00"), reads, planRead, (*Unit).read},
	{0x0a, none, "WRITE(6)", usage("0a 1f ff ff ff 00"), stores | partial, planWrite, (*Unit).write},
	{0x12, none, "INQUIRY", usage("12 01 ff ff ff 00"), inquiry, planInquiry, (*Unit).inquiry},
	{0x15, none, "MODE SELECT(6)", usage("15 11 00 00 ff 00"), exclusive | inStandby, planModeSelect, (*Unit).modeSelect},
	{0x16, none, "RESERVE(6)", usage("16 00 00 00 00 00"), exclusive | free6 | freePR, nil, (*Unit).reserve6},
	{0x17, none, "RELEASE(6)", usage("17 00 00 00 00 00"), exclusive | free6 | freePR, nil, (*Unit).release6},
	{0x1a, none, "MODE SENSE(6)", usage("1a 08 ff ff ff 00"), inStandby | duringSanitize, planModeSense, (*Unit).modeSense},
	{0x1b, none, "START STOP UNIT", usage("1b 01 00 0f f7 00"), exclusive | sanitized, nil, (*Unit).startStop},
	{0x1e, none, "PREVENT ALLOW MEDIUM REMOVAL", usage("1e 00 00 00 03 00"), exclusive, planPrevent, (*Unit).prevent},
	{0x25, none, "READ CAPACITY(10)", usage("25 00 ff ff ff ff 00 00 01 00"), looks, planReadCapacity10, (*Unit).readCapacity10},
	{0x28, none, "READ(10)", usage("28 18 ff ff ff ff 1f ff ff 00"), reads, planRead, (*Unit).read},
	{0x2a, none, "WRITE(10)", usage("2a 18 ff ff ff ff 1f ff ff 00"), stores | partial, planWrite, (*Unit).write},
	{0x2e, none, "WRITE AND VERIFY(10)", usage("2e 16 ff ff ff ff 1f ff ff 00"), stores | partial, planWriteAndVerify, (*Unit).writeAndVerify},
	{0x2f, none, "VERIFY(10)", usage("2f 16 ff ff ff ff 1f ff ff 00"), reads, planVerify, (*Unit).verify},
	{0x34, none, "PRE-FETCH(10)", usage("34 02 ff ff ff ff 1f ff ff 00"), reads, planExtent, (*Unit).prefetch},
	{0x35, none, "SYNCHRONIZE CACHE(10)", usage("35 06 ff ff ff ff 1f ff ff 00"), stores, planExtent, (*Unit).synchronize},
	{0x41, none, "WRITE SAME(10)", usage("41 08 ff ff ff ff 1f ff ff 00"), stores, planWriteSame, (*Unit).writeSame},
	{0x42, none, "UNMAP", usage("42 00 00 00 00 00 1f ff ff 00"), stores, planUnmap, (*Unit).unmap},
	{0x48, 0x01, "SANITIZE, OVERWRITE", usage("48 a1 00 00 00 00 00 ff ff 00"), stores | exclusive | sanitized | atomically, planSanitize, (*Unit).overwrite},
	{0x48, 0x02, "SANITIZE, BLOCK ERASE", usage("48 a2 00 00 00 00 00 00 00 00"), stores | exclusive | sanitized | atomically, planSanitize, (*Unit).blockErase},
	{0x48, 0x1f, "SANITIZE, EXIT FAILURE MODE", usage("48 bf 00 00 00 00 00 00 00 00"), medium | exclusive | sanitized, nil, (*Unit).exitFailureMode},
	{0x55, none, "MODE SELECT(10)", usage("55 11 00 00 00 00 00 ff ff 00"), exclusive | inStandby, planModeSelect, (*Unit).modeSelect},
	{0x5a, none, "MODE SENSE(10)", usage("5a 18 ff ff 00 00 00 ff ff 00"), inStandby | duringSanitize, planModeSense, (*Unit).modeSense},
	{0x5e, 0x00, "PERSISTENT RESERVE IN, READ KEYS", usage("5e 00 00 00 00 00 00 ff ff 00"), freePR | inStandby, planPersistIn, (*Unit).readKeys},
	{0x5e, 0x01, "PERSISTENT RESERVE IN, READ RESERVATION", usage("5e 01 00 00 00 00 00 ff ff 00"), freePR | inStandby, planPersistIn, (*Unit).readReservation},
	{0x5e, 0x02, "PERSISTENT RESERVE IN, REPORT CAPABILITIES", usage("5e 02 00 00 00 00 00 ff ff 00"), freePR | inStandby, planPersistIn, (*Unit).reportCapabilities},
	{0x5e, 0x03, "PERSISTENT RESERVE IN, READ FULL STATUS", usage("5e 03 00 00 00 00 00 ff ff 00"), freePR | inStandby, planPersistIn, (*Unit).readFullStatus},
	{0x5f, 0x00, "PERSISTENT RESERVE OUT, REGISTER", usage("5f 00 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).register},
	{0x5f, 0x01, "PERSISTENT RESERVE OUT, RESERVE", usage("5f 01 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).reserve},
	{0x5f, 0x02, "PERSISTENT RESERVE OUT, RELEASE", usage("5f 02 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).release},
	{0x5f, 0x03, "PERSISTENT RESERVE OUT, CLEAR", usage("5f 03 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).clear},
	{0x5f, 0x04, "PERSISTENT RESERVE OUT, PREEMPT", usage("5f 04 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).preempt},
	{0x5f, 0x05, "PERSISTENT RESERVE OUT, PREEMPT AND ABORT", usage("5f 05 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).preempt},
	{0x5f, 0x06, "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", usage("5f 06 ff 00 00 ff ff ff ff 00"), exclusive | freePR | inStandby, planPersistOut, (*Unit).register},
	{0x88, none, "READ(16)", usage("88 18 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), reads, planRead, (*Unit).read},
	{0x89, none, "COMPARE AND WRITE", usage("89 18 ff ff ff ff ff ff ff ff 00 00 00 ff 1f 00"), stores | exclusive | atomically, planCompareAndWrite, (*Unit).compareAndWrite},
	{0x8a, none, "WRITE(16)", usage("8a 18 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), stores | partial, planWrite, (*Unit).write},
	{0x8b, none, "ORWRITE(16)", usage("8b 18 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), stores | exclusive | atomically, planWrite, (*Unit).orWrite},
	{0x8e, none, "WRITE AND VERIFY(16)", usage("8e 16 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), stores | partial, planWriteAndVerify, (*Unit).writeAndVerify},
	{0x8f, none, "VERIFY(16)", usage("8f 16 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), reads, planVerify, (*Unit).verify},
	{0x90, none, "PRE-FETCH(16)", usage("90 02 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), reads, planExtent, (*Unit).prefetch},
	{0x91, none, "SYNCHRONIZE CACHE(16)", usage("91 06 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), stores, planExtent, (*Unit).synchronize},
	{0x93, none, "WRITE SAME(16)", usage("93 09 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00"), stores, planWriteSame, (*Unit).writeSame},
	{0x9c, none, "WRITE ATOMIC(16)", usage("9c 18 ff ff ff ff ff ff ff ff 00 00 ff ff 1f 00"), stores | exclusive | atomically, planWriteAtomic, (*Unit).write},
	{0x9e, 0x10, "READ CAPACITY(16)", usage("9e 10 ff ff ff ff ff ff ff ff ff ff ff ff 01 00"), looks, planReadCapacity16, (*Unit).readCapacity16},
	{0x9e, 0x12, "GET LBA STATUS", usage("9e 12 ff ff ff ff ff ff ff ff ff ff ff ff 00 00"), reads, planLBAStatus, (*Unit).lbaStatus},
	{0xa0, none, "REPORT LUNS", usage("a0 00 ff 00 00 00 ff ff ff ff 00 00"), inquiry, planReportLUNs, (*Unit).reportLUNs},
	{0xa3, 0x0a, "REPORT TARGET PORT GROUPS", usage("a3 ea 00 00 00 00 ff ff ff ff 00 00"), freePR | anyPort, planPortGroups, (*Unit).reportPortGroups},
	{0xa3, 0x0c, "REPORT SUPPORTED OPERATION CODES", usage("a3 0c 87 ff ff ff ff ff ff ff 00 00"), freePR | duringSanitize, planReportOpcodes, nil},
	{0xa4, 0x0a, "SET TARGET PORT GROUPS", usage("a4 0a 00 00 00 00 ff ff ff ff 00 00"), exclusive | freePR | anyPort, planSetPortGroups, (*Unit).setPortGroups},
	{0xa8, none, "READ(12)", usage("a8 18 ff ff ff ff ff ff ff ff 1f 00"), reads, planRead, (*Unit).read},
	{0xaa, none, "WRITE(12)", usage("aa 18 ff ff ff ff ff ff ff ff 1f 00"), stores | partial, planWrite, (*Unit).write},
	{0xae, none, "WRITE AND VERIFY(12)", usage("ae 16 ff ff ff ff ff ff ff ff 1f 00"), stores | partial, planWriteAndVerify, (*Unit).writeAndVerify},
	{0xaf, none, "VERIFY(12)", usage("af 16 ff ff ff ff ff ff ff ff 1f 00"), reads, planVerify, (*Unit).verify},
}

// usage decodes the CDB usage data of a row.
func usage(text string) []byte {
	var b []byte
	for i := 0; i+1 < len(text); i += 3 {
		b, _ = hex.AppendDecode(b, []byte(text[i:i+2]))
	}
	return b
}

// rows is the index of table by operation code.
var rows [256][]*row

func init() {
	for i := range table {
		r := &table[i]
		if r.op == 0xa3 && r.sa == 0x0c {
			r.run = (*Unit).reportOpcodes // reads the table, so the table cannot name it
		}
		rows[r.op] = append(rows[r.op], r)
	}
}

// find returns the row of a CDB. If there is none, find returns the reason.
func find(cdb *[CDBLength]byte) (*row, Sense) {
	candidates := rows[cdb[0]]
	if len(candidates) == 0 {
		return nil, Sense{Key: IllegalRequest, Code: scsi.InvalidOperationCode, Field: 1}
	}
	for _, r := range candidates {
		if r.sa == none || r.sa == int(cdb[1]&0x1f) {
			return r, r.reserved(cdb)
		}
	}
	return nil, badField(1)
}

// Bits of the octet CONTROL, the last one of each CDB (SAM-5 §5.2).
const (
	controlNACA = 0x04
	controlLink = 0x01 // obsolete
)

// reserved returns a reason if the CDB has a bit that the unit does not take.
func (r *row) reserved(cdb *[CDBLength]byte) Sense {
	last := len(r.usage) - 1
	for i := 1; i < last; i++ {
		if cdb[i]&^r.usage[i] != 0 {
			return badField(i)
		}
	}
	if cdb[last]&(controlNACA|controlLink) != 0 {
		return badField(last)
	}
	return Sense{}
}
