package unit

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Config describes a logical unit. The zero value of each optional field works.
type Config struct {
	// Backend is the medium. nil: there is no logical unit at this LUN. Such a unit
	// answers INQUIRY, REPORT LUNS and REQUEST SENSE as SPC-4 §6.6.2 demands.
	Backend Backend

	BlockSize    int    // octets of a logical block: 512 or 4096; 0 means 512
	PhysicalExp  byte   // a physical block has 2^PhysicalExp logical blocks
	MaxTransfer  int    // longest transfer of one command in octets; 0 means 8 MiB
	ReadOnly     bool   // the unit refuses writes
	Removable    bool   // the medium can be ejected and loaded
	RotationRate uint16 // 0 means 1: not a rotating medium (SBC-3 §6.6.2)

	Vendor, Product, Revision string // at most 8, 16 and 4 characters; empty means "STAG", "VIRTUAL-DISK", "1"
	Serial                    string // unit serial number, at most 36 characters; also the source of the unit's identifier

	Target    string // name of the target
	PortGroup uint16 // tag of the target portal group, 1 or more; 0 means 1

	// Groups are the target port groups (SPC-4 §5.15). Empty: there is the group PortGroup,
	// which is active/optimized. ExplicitAccess lets initiators change the states by SET
	// TARGET PORT GROUPS.
	Groups         []PortGroup
	ExplicitAccess bool

	// State is what Save got last, if the reservations are to outlive this process.
	// Save, if set, stores the state. Without Save the unit says that it cannot keep
	// reservations over a loss of power.
	State []byte
	Save  func(state []byte) error

	// Abort, if set, is called when PREEMPT AND ABORT ends the tasks of a nexus. Abort
	// must not call the unit.
	Abort func(*Nexus)
}

// Unit is a logical unit. The caller must serialize Begin, Attach, Detach and Reset, and
// Run of an exclusive task, with all methods. Run of other tasks may be concurrent, also
// with Run of an exclusive task that does not use the medium.
// AppendSense, Lend and Nexus.Open are safe at any time.
type Unit struct {
	conf   Config
	blocks uint64 // capacity
	shift  uint   // a block has 1<<shift octets

	nexuses []*Nexus
	lost    []string // names of nexuses that were lost, for which a unit attention waits

	reserved *Nexus // holder of the reservation by RESERVE(6)
	pr       persist
	swp      bool // software write protect (SPC-4 §7.5.8)
	ejected  bool
	unclean  bool // a sanitize operation has failed

	sanitizing *Sanitize // nil: no sanitize operation goes on

	loans       loans
	descriptors atomic.Bool // sense data have the descriptor format
	told        atomic.Pointer[Reservation]
}

const (
	defaultMaxTransfer = 8 << 20
	maxSerial          = 36
)

// New makes a unit. New reports all mistakes of c at once.
func New(c Config) (*Unit, error) {
	c.fill()
	u := &Unit{conf: c}
	if c.Backend == nil {
		return u, nil
	}
	err := errors.Join(c.check(), u.pr.load(c.State))
	if err != nil {
		return nil, err
	}
	for u.shift = 9; 1<<u.shift < c.BlockSize; u.shift++ {
	}
	u.blocks = uint64(c.Backend.Size()) >> u.shift
	if _, lends := c.Backend.(Lender); lends {
		u.loans.regions = make([]atomic.Int64, loanRegions)
	}
	u.announce()
	return u, nil
}

// fill sets the defaults.
func (c *Config) fill() {
	for _, d := range []struct {
		field *string
		value string
	}{{&c.Vendor, "STAG"}, {&c.Product, "VIRTUAL-DISK"}, {&c.Revision, "1"}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if c.BlockSize == 0 {
		c.BlockSize = 512
	}
	if c.MaxTransfer == 0 {
		c.MaxTransfer = defaultMaxTransfer
	}
	if c.RotationRate == 0 {
		c.RotationRate = 1
	}
	c.PortGroup = max(c.PortGroup, 1)
	c.Groups = slices.Clone(c.Groups)
	if len(c.Groups) == 0 {
		c.Groups = []PortGroup{{Tag: c.PortGroup}}
	}
}

// check returns what is wrong with a filled Config.
func (c *Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.BlockSize != 512 && c.BlockSize != 4096 {
		wrong("block size %d: use 512 or 4096", c.BlockSize)
	} else if c.Backend.Size() < int64(c.BlockSize) {
		wrong("the backend has %d octets, less than one block of %d", c.Backend.Size(), c.BlockSize)
	}
	if c.MaxTransfer < 64<<10 || c.MaxTransfer > 1<<30 {
		wrong("longest transfer %d: use 65536 to 1073741824 octets", c.MaxTransfer)
	}
	if c.PhysicalExp > 15 {
		wrong("physical block of 2^%d logical blocks: the exponent is at most 15", c.PhysicalExp)
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{{"vendor", c.Vendor, 8}, {"product", c.Product, 16}, {"revision", c.Revision, 4}, {"serial number", c.Serial, maxSerial}} {
		if len(f.value) > f.most || !printable(f.value) {
			wrong("%s %q: use at most %d printable ASCII characters", f.name, f.value, f.most)
		}
	}
	errs = append(errs, c.checkGroups())
	return errors.Join(errs...)
}

// printable reports whether s consists of the characters that SPC-4 §4.3.1 allows.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// Blocks returns the capacity in blocks.
func (u *Unit) Blocks() uint64 { return u.blocks }

// BlockSize returns the length of a block in octets.
func (u *Unit) BlockSize() int { return u.conf.BlockSize }

// MaxTransfer returns how many octets Task.Want is at most.
func (u *Unit) MaxTransfer() int { return u.conf.MaxTransfer }

// AppendSense appends the sense data of s, in the format that the control mode page
// has.
func (u *Unit) AppendSense(b []byte, s Sense) []byte {
	if u.descriptors.Load() {
		return s.appendDescriptor(b)
	}
	return s.appendFixed(b)
}

// Reset is a logical unit reset (SAM-5 §6.3.3). The transport must have ended all tasks
// of the unit.
func (u *Unit) Reset() {
	u.reserved = nil
	u.swp = false
	u.descriptors.Store(false)
	for _, n := range u.nexuses {
		n.prevents = false
		n.attend(scsi.DeviceReset)
	}
	u.publish()
}

// writeProtected reports whether the unit refuses writes, and why.
func (u *Unit) writeProtected() (Sense, bool) {
	switch {
	case u.conf.ReadOnly:
		return Sense{Key: DataProtect, Code: scsi.WriteProtected}, true
	case u.swp:
		return Sense{Key: DataProtect, Code: scsi.SoftwareWriteProtected}, true
	}
	return Sense{}, false
}

// notReady returns why the medium cannot be used, or no reason.
func (u *Unit) notReady() Sense {
	if u.sanitizing != nil {
		return u.sanitizing.inProgress()
	}
	if u.ejected {
		return Sense{Key: NotReady, Code: scsi.MediumNotPresent}
	}
	return Sense{}
}

// others calls fn for each nexus but n.
func (u *Unit) others(n *Nexus, fn func(*Nexus)) {
	for _, o := range u.nexuses {
		if o != n {
			fn(o)
		}
	}
}

// forget removes a name from the lost ones and reports whether it was there.
func (u *Unit) forget(name string) bool {
	i := slices.Index(u.lost, name)
	if i < 0 {
		return false
	}
	u.lost = slices.Delete(u.lost, i, i+1)
	return true
}
