package unit

import (
	"slices"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Nexus is one initiator port at one unit: an I_T_L nexus (SAM-5 §4.8).
type Nexus struct {
	unit *Unit
	name string
	luns func() []uint64
	port uint16 // the target port: its relative identifier, and the tag of its group

	attentions []scsi.Code // unit attention conditions, oldest first
	prevents   bool        // this nexus prevents the removal of the medium

	// gate tells engines, without a lock, which commands need no further check.
	gate atomic.Uint32
}

// Bits of Nexus.gate.
const (
	mayRead  = 1 << iota // no condition stops a command that reads the medium
	mayWrite             // no condition stops a command that writes the medium
)

// Limits of what a unit remembers of its initiators.
const (
	maxAttentions = 8
	maxLost       = 1024
)

// Attach makes a nexus. name is the name of the initiator port: for iSCSI the
// initiator's name, ",i,0x" and the ISID (SPC-4 §7.6.4.6). luns returns the LUNs that
// this initiator may use, in the format of REPORT LUNS. The target port is that of the
// group Config.PortGroup.
func (u *Unit) Attach(name string, luns func() []uint64) *Nexus {
	return u.AttachAt(u.conf.PortGroup, name, luns)
}

// AttachAt is Attach for the target port of a group. Each target port group has one port:
// in iSCSI a target port is a portal group (RFC 7143 §4.4.2).
func (u *Unit) AttachAt(group uint16, name string, luns func() []uint64) *Nexus {
	n := &Nexus{unit: u, name: name, luns: luns, port: group}
	if u.forget(name) {
		n.attend(scsi.NexusLoss)
	}
	u.nexuses = append(u.nexuses, n)
	u.publish()
	return n
}

// Detach ends a nexus. The transport must have ended all tasks of the nexus. lost says
// that the initiator did not log out: the next nexus of the same name gets a unit
// attention condition. Persistent reservations remain.
func (u *Unit) Detach(n *Nexus, lost bool) {
	i := slices.Index(u.nexuses, n)
	if i < 0 {
		return
	}
	u.nexuses = slices.Delete(u.nexuses, i, i+1)
	if u.reserved == n {
		u.reserved = nil
	}
	if lost && !slices.Contains(u.lost, n.name) {
		u.lost = append(u.lost, n.name)
		u.lost = u.lost[max(0, len(u.lost)-maxLost):]
	}
	n.gate.Store(0)
	u.publish()
}

// Name returns the name of the initiator port.
func (n *Nexus) Name() string { return n.name }

// Unit returns the unit of the nexus.
func (n *Nexus) Unit() *Unit { return n.unit }

// attend adds a unit attention condition, unless the nexus has it already.
func (n *Nexus) attend(c scsi.Code) {
	if !slices.Contains(n.attentions, c) && len(n.attentions) < maxAttentions {
		n.attentions = append(n.attentions, c)
	}
	n.gate.Store(0)
}

// Attend adds a unit attention condition to the nexus, for example
// ReportedLUNsChanged.
func (n *Nexus) Attend(c scsi.Code) { n.attend(c) }

// attention takes the oldest unit attention condition.
func (n *Nexus) attention() (Sense, bool) {
	if len(n.attentions) == 0 {
		return Sense{}, false
	}
	c := n.attentions[0]
	n.attentions = slices.Delete(n.attentions, 0, 1)
	n.unit.publish()
	return Sense{Key: UnitAttention, Code: c}, true
}

// publish brings the gates of all nexuses, and what Reservation returns, up to date.
func (u *Unit) publish() {
	u.announce()
	for _, n := range u.nexuses {
		var g uint32
		if u.conf.Backend != nil && len(n.attentions) == 0 && u.access(n).active() && !u.unclean && !u.notReady().failed() {
			if !u.conflict(n, reads) {
				g |= mayRead
			}
			if _, protected := u.writeProtected(); !protected && !u.conflict(n, stores) {
				g |= mayWrite
			}
		}
		if n.gate.Load() != g {
			n.gate.Store(g)
		}
	}
}
