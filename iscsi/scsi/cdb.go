package scsi

import (
	"encoding/binary"
	"fmt"
)

// CDB is a command descriptor block, padded with zeros to the 16 octets of an iSCSI
// header (SPC-4 §4.2). All commands of a disk but READ(32) and its like fit.
type CDB [16]byte

// Direction is the way that the data of a command take.
type Direction uint8

const (
	NoData  Direction = iota
	DataIn            // from the target to the initiator
	DataOut           // from the initiator to the target
)

// place is a field of a CDB: its first octet, and its length in octets. The zero place
// is no field.
type place struct{ at, size uint8 }

// Op holds what is known of a command without its CDB.
type Op struct {
	Name string
	Len  int       // octets of the CDB; 0: the command is unknown
	Dir  Direction // with a transfer length of 0 the command has no data

	// Repeatable says that a second execution has the effect of one, so that an
	// initiator that does not know whether the first took place may send the command
	// again. Commands of other initiators in between are not considered.
	Repeatable bool

	lba    place
	blocks place // number of blocks, which are the data if unit is perBlock
	octets place // allocation length or parameter list length
	unit   transfer
}

// transfer says how the length of a command's data follows from its CDB.
type transfer uint8

const (
	perOctet transfer = iota // octets, or no data
	perBlock                 // one block for each of blocks
	twice                    // two blocks for each of blocks (COMPARE AND WRITE)
	oneBlock                 // one block (WRITE SAME)
	checked                  // as perBlock if BYTCHK is 1, one block if 3 (VERIFY)
	fixed8                   // 8 octets (READ CAPACITY(10))
)

var (
	at1n3  = place{1, 3}
	at2n4  = place{2, 4}
	at2n8  = place{2, 8}
	at3n2  = place{3, 2}
	at4n1  = place{4, 1}
	at6n4  = place{6, 4}
	at5n4  = place{5, 4}
	at7n2  = place{7, 2}
	at10n4 = place{10, 4}
	at12n2 = place{12, 2}
	at13n1 = place{13, 1}
)

// ops has a row for each operation code, for operation codes without service actions.
var ops = [256]Op{
	0x00: {Name: "TEST UNIT READY", Len: 6, Repeatable: true},
	0x03: {Name: "REQUEST SENSE", Len: 6, Dir: DataIn, octets: at4n1},
	0x04: {Name: "FORMAT UNIT", Len: 6, Dir: DataOut},
	0x08: {Name: "READ(6)", Len: 6, Dir: DataIn, Repeatable: true, lba: at1n3, blocks: at4n1, unit: perBlock},
	0x0a: {Name: "WRITE(6)", Len: 6, Dir: DataOut, Repeatable: true, lba: at1n3, blocks: at4n1, unit: perBlock},
	0x12: {Name: "INQUIRY", Len: 6, Dir: DataIn, Repeatable: true, octets: at3n2},
	0x15: {Name: "MODE SELECT(6)", Len: 6, Dir: DataOut, octets: at4n1},
	0x16: {Name: "RESERVE(6)", Len: 6},
	0x17: {Name: "RELEASE(6)", Len: 6},
	0x1a: {Name: "MODE SENSE(6)", Len: 6, Dir: DataIn, Repeatable: true, octets: at4n1},
	0x1b: {Name: "START STOP UNIT", Len: 6},
	0x1e: {Name: "PREVENT ALLOW MEDIUM REMOVAL", Len: 6},
	0x25: {Name: "READ CAPACITY(10)", Len: 10, Dir: DataIn, Repeatable: true, unit: fixed8},
	0x28: {Name: "READ(10)", Len: 10, Dir: DataIn, Repeatable: true, lba: at2n4, blocks: at7n2, unit: perBlock},
	0x2a: {Name: "WRITE(10)", Len: 10, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at7n2, unit: perBlock},
	0x2e: {Name: "WRITE AND VERIFY(10)", Len: 10, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at7n2, unit: perBlock},
	0x2f: {Name: "VERIFY(10)", Len: 10, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at7n2, unit: checked},
	0x34: {Name: "PRE-FETCH(10)", Len: 10, Repeatable: true, lba: at2n4, blocks: at7n2},
	0x35: {Name: "SYNCHRONIZE CACHE(10)", Len: 10, Repeatable: true, lba: at2n4, blocks: at7n2},
	0x41: {Name: "WRITE SAME(10)", Len: 10, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at7n2, unit: oneBlock},
	0x42: {Name: "UNMAP", Len: 10, Dir: DataOut, Repeatable: true, octets: at7n2},
	0x4d: {Name: "LOG SENSE", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	0x55: {Name: "MODE SELECT(10)", Len: 10, Dir: DataOut, octets: at7n2},
	0x5a: {Name: "MODE SENSE(10)", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	0x83: {Name: "EXTENDED COPY", Len: 16, Dir: DataOut, octets: at10n4},
	0x88: {Name: "READ(16)", Len: 16, Dir: DataIn, Repeatable: true, lba: at2n8, blocks: at10n4, unit: perBlock},
	0x89: {Name: "COMPARE AND WRITE", Len: 16, Dir: DataOut, lba: at2n8, blocks: at13n1, unit: twice},
	0x8a: {Name: "WRITE(16)", Len: 16, Dir: DataOut, Repeatable: true, lba: at2n8, blocks: at10n4, unit: perBlock},
	0x8b: {Name: "ORWRITE(16)", Len: 16, Dir: DataOut, lba: at2n8, blocks: at10n4, unit: perBlock},
	0x8e: {Name: "WRITE AND VERIFY(16)", Len: 16, Dir: DataOut, Repeatable: true, lba: at2n8, blocks: at10n4, unit: perBlock},
	0x8f: {Name: "VERIFY(16)", Len: 16, Dir: DataOut, Repeatable: true, lba: at2n8, blocks: at10n4, unit: checked},
	0x90: {Name: "PRE-FETCH(16)", Len: 16, Repeatable: true, lba: at2n8, blocks: at10n4},
	0x91: {Name: "SYNCHRONIZE CACHE(16)", Len: 16, Repeatable: true, lba: at2n8, blocks: at10n4},
	0x93: {Name: "WRITE SAME(16)", Len: 16, Dir: DataOut, Repeatable: true, lba: at2n8, blocks: at10n4, unit: oneBlock},
	0x9c: {Name: "WRITE ATOMIC(16)", Len: 16, Dir: DataOut, Repeatable: true, lba: at2n8, blocks: at12n2, unit: perBlock},
	0xa0: {Name: "REPORT LUNS", Len: 12, Dir: DataIn, Repeatable: true, octets: at6n4},
	0xa8: {Name: "READ(12)", Len: 12, Dir: DataIn, Repeatable: true, lba: at2n4, blocks: at6n4, unit: perBlock},
	0xaa: {Name: "WRITE(12)", Len: 12, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at6n4, unit: perBlock},
	0xae: {Name: "WRITE AND VERIFY(12)", Len: 12, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at6n4, unit: perBlock},
	0xaf: {Name: "VERIFY(12)", Len: 12, Dir: DataOut, Repeatable: true, lba: at2n4, blocks: at6n4, unit: checked},
}

// action is an operation code and its service action, the low five bits of octet 1.
type action struct{ op, sa uint8 }

const actionMask = 0x1f

// actions has a row for each command that a service action names.
var actions = map[action]Op{
	{0x48, 0x01}: {Name: "SANITIZE, OVERWRITE", Len: 10, Dir: DataOut, octets: at7n2},
	{0x48, 0x02}: {Name: "SANITIZE, BLOCK ERASE", Len: 10},
	{0x48, 0x03}: {Name: "SANITIZE, CRYPTOGRAPHIC ERASE", Len: 10},
	{0x48, 0x1f}: {Name: "SANITIZE, EXIT FAILURE MODE", Len: 10},
	{0x5e, 0x00}: {Name: "PERSISTENT RESERVE IN, READ KEYS", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	{0x5e, 0x01}: {Name: "PERSISTENT RESERVE IN, READ RESERVATION", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	{0x5e, 0x02}: {Name: "PERSISTENT RESERVE IN, REPORT CAPABILITIES", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	{0x5e, 0x03}: {Name: "PERSISTENT RESERVE IN, READ FULL STATUS", Len: 10, Dir: DataIn, Repeatable: true, octets: at7n2},
	{0x5f, 0x00}: {Name: "PERSISTENT RESERVE OUT, REGISTER", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x01}: {Name: "PERSISTENT RESERVE OUT, RESERVE", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x02}: {Name: "PERSISTENT RESERVE OUT, RELEASE", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x03}: {Name: "PERSISTENT RESERVE OUT, CLEAR", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x04}: {Name: "PERSISTENT RESERVE OUT, PREEMPT", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x05}: {Name: "PERSISTENT RESERVE OUT, PREEMPT AND ABORT", Len: 10, Dir: DataOut, octets: at5n4},
	{0x5f, 0x06}: {Name: "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", Len: 10, Dir: DataOut, octets: at5n4},
	{0x9e, 0x10}: {Name: "READ CAPACITY(16)", Len: 16, Dir: DataIn, Repeatable: true, octets: at10n4},
	{0x9e, 0x12}: {Name: "GET LBA STATUS", Len: 16, Dir: DataIn, Repeatable: true, octets: at10n4},
	{0xa3, 0x0a}: {Name: "REPORT TARGET PORT GROUPS", Len: 12, Dir: DataIn, Repeatable: true, octets: at6n4},
	{0xa4, 0x0a}: {Name: "SET TARGET PORT GROUPS", Len: 12, Dir: DataOut, octets: at6n4},
	{0xa3, 0x0c}: {Name: "REPORT SUPPORTED OPERATION CODES", Len: 12, Dir: DataIn, Repeatable: true, octets: at6n4},
	{0xa3, 0x0d}: {Name: "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", Len: 12, Dir: DataIn, Repeatable: true, octets: at6n4},
}

// Op returns the row of the command. The row of an unknown command has no Name.
func (c *CDB) Op() Op {
	if row := ops[c[0]]; row.Name != "" {
		return row
	}
	return actions[action{c[0], c[1] & actionMask}]
}

// String returns the name of the command, and its blocks if it has any.
func (c *CDB) String() string {
	row := c.Op()
	if row.Name == "" {
		return fmt.Sprintf("command %02xh", c[0])
	}
	if lba, blocks, ok := c.Extent(); ok {
		return fmt.Sprintf("%s lba %d blocks %d", row.Name, lba, blocks)
	}
	return row.Name
}

// Extent returns the blocks that the command is about. ok is false for a command without
// blocks. In SYNCHRONIZE CACHE, WRITE SAME and PRE-FETCH, 0 blocks are all up to the end
// of the unit.
func (c *CDB) Extent() (lba uint64, blocks uint32, ok bool) {
	row := c.Op()
	if row.lba.size == 0 {
		return 0, 0, false
	}
	lba, blocks = c.read(row.lba), uint32(c.read(row.blocks))
	if row.lba == at1n3 { // READ(6) and WRITE(6): an LBA of 21 bits, and 0 is 256 blocks (SBC-3 §5.10)
		lba &= 1<<21 - 1
		if blocks == 0 {
			blocks = 256
		}
	}
	return lba, blocks, true
}

// Length returns how many octets of data the command has on a unit with blocks of
// blockSize octets. For a command with an allocation length it is the most that the
// target may send. ok is false if the CDB does not tell.
func (c *CDB) Length(blockSize uint32) (n uint64, ok bool) {
	row := c.Op()
	_, blocks, _ := c.Extent()
	whole := uint64(blocks) * uint64(blockSize)
	switch {
	case row.Name == "" || row.Dir != NoData && row.unit == perOctet && row.octets.size == 0:
		return 0, false
	case row.Dir == NoData:
		return 0, true
	}
	switch row.unit {
	case perBlock:
		return whole, true
	case twice:
		return 2 * whole, true
	case oneBlock:
		const noDataOut = 0x01 // NDOB (SBC-3 §5.43)
		if row.Len == 16 && c[1]&noDataOut != 0 {
			return 0, true
		}
		return uint64(blockSize), true
	case checked:
		return c.checkedLength(blockSize, whole), true
	case fixed8:
		return 8, true
	}
	return c.read(row.octets), true
}

// checkedLength returns the data of VERIFY by BYTCHK (SBC-3 §5.28).
func (c *CDB) checkedLength(blockSize uint32, whole uint64) uint64 {
	switch c[1] >> 1 & 3 {
	case 1:
		return whole
	case 3:
		return uint64(blockSize)
	}
	return 0
}

// read returns the field at p.
func (c *CDB) read(p place) (v uint64) {
	for _, b := range c[p.at : p.at+p.size] {
		v = v<<8 | uint64(b)
	}
	return v
}

func (c *CDB) put16(at int, v uint16) { binary.BigEndian.PutUint16(c[at:], v) }
func (c *CDB) put32(at int, v uint32) { binary.BigEndian.PutUint32(c[at:], v) }
func (c *CDB) put64(at int, v uint64) { binary.BigEndian.PutUint64(c[at:], v) }
