package unit

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// PortGroup is a target port group with one target port, whose relative identifier is the
// tag (SPC-4 §5.15).
type PortGroup struct {
	Tag       uint16 // 1 or more
	State     scsi.AccessState
	Preferred bool

	cause byte // STATUS CODE: why the state is what it is
}

// Values of STATUS CODE (SPC-4 table 307).
const (
	byInitiator = 1
	byTarget    = 2
)

// checkGroups returns what is wrong with the target port groups.
func (c *Config) checkGroups() error {
	var errs []error
	seen := map[uint16]bool{}
	for _, g := range c.Groups {
		if g.Tag == 0 || seen[g.Tag] {
			errs = append(errs, fmt.Errorf("target port group %d: give each group another tag of 1 to 65535", g.Tag))
		}
		seen[g.Tag] = true
		errs = append(errs, settable(g.State))
	}
	if !seen[c.PortGroup] {
		errs = append(errs, fmt.Errorf("target port group %d is not among the Groups", c.PortGroup))
	}
	return errors.Join(errs...)
}

// settable returns an error unless a group can have a state.
func settable(s scsi.AccessState) error {
	switch s {
	case scsi.Optimized, scsi.NonOptimized, scsi.Standby, scsi.Unavailable, scsi.Transition:
		return nil
	}
	return fmt.Errorf("access state %v: choose active/optimized, active/non-optimized, standby, unavailable or transitioning", s)
}

// group returns the target port group with a tag, or nil.
func (u *Unit) group(tag uint16) *PortGroup {
	for i := range u.conf.Groups {
		if g := &u.conf.Groups[i]; g.Tag == tag {
			return g
		}
	}
	return nil
}

// state is the access state of a target port.
type state scsi.AccessState

// active reports whether all commands work.
func (s state) active() bool {
	return s == state(scsi.Optimized) || s == state(scsi.NonOptimized)
}

// access returns the state of the target port of a nexus.
func (u *Unit) access(n *Nexus) state {
	if g := u.group(n.port); g != nil {
		return state(g.State)
	}
	return state(scsi.Optimized)
}

// denied returns why the target port of the nexus does not let a command through (SPC-4
// §5.15.2.4).
func (u *Unit) denied(n *Nexus, f flag) Sense {
	s := u.access(n)
	switch {
	case s.active() || f&inUnavailable != 0:
		return Sense{}
	case s == state(scsi.Transition):
		return Sense{Key: NotReady, Code: scsi.AsymmetricTransition}
	case s != state(scsi.Standby):
		return Sense{Key: NotReady, Code: scsi.TargetPortUnavailable}
	case f&inStandby != 0:
		return Sense{}
	}
	return Sense{Key: NotReady, Code: scsi.TargetPortStandby}
}

// SetAccess changes the state of a target port group. All nexuses get a unit attention
// condition, unless the group has the state already.
func (u *Unit) SetAccess(tag uint16, s scsi.AccessState) error {
	g := u.group(tag)
	if g == nil {
		return fmt.Errorf("there is no target port group %d", tag)
	}
	if err := settable(s); err != nil {
		return err
	}
	u.setAccess(g, s, byTarget, nil)
	return nil
}

// setAccess changes a state. by is the nexus that demands it, or nil.
func (u *Unit) setAccess(g *PortGroup, s scsi.AccessState, cause byte, by *Nexus) {
	if g.State == s {
		return
	}
	g.State, g.cause = s, cause
	u.others(by, func(n *Nexus) { n.attend(scsi.AsymmetricAccessChanged) })
	u.publish()
}

// planPortGroups checks REPORT TARGET PORT GROUPS (SPC-4 §6.37).
func planPortGroups(_ *Unit, t *Task) Sense {
	if t.CDB[1]>>5 > 1 {
		return badField(1)
	}
	t.in(binary.BigEndian.Uint32(t.CDB[6:]))
	return Sense{}
}

// reportPortGroups executes REPORT TARGET PORT GROUPS.
func (u *Unit) reportPortGroups(t *Task) Sense {
	b := make([]byte, 4, 8+12*len(u.conf.Groups))
	if t.CDB[1]>>5 == 1 {
		b = append(b, 0x10, 0, 0, 0) // extended header: no transition time
	}
	const (
		preferred = 0x80
		supported = 0x8f // transitioning, unavailable, standby, active/non-optimized, active/optimized
	)
	for _, g := range u.conf.Groups {
		first := byte(g.State)
		if g.Preferred {
			first |= preferred
		}
		b = append(b, first, supported)
		b = binary.BigEndian.AppendUint16(b, g.Tag)
		b = append(b, 0, g.cause, 0, 1) // one port
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, g.Tag)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.put(b)
	return Sense{}
}

const opSetPortGroups = 0xa4

// planSetPortGroups checks SET TARGET PORT GROUPS (SPC-4 §6.45).
func planSetPortGroups(u *Unit, t *Task) Sense {
	if !u.conf.ExplicitAccess {
		return Sense{Key: IllegalRequest, Code: scsi.InvalidOperationCode, Field: 1}
	}
	n := binary.BigEndian.Uint32(t.CDB[6:])
	if n > longestGroups {
		return badField(6)
	}
	t.out(n)
	return Sense{}
}

// longestGroups limits the parameter list of SET TARGET PORT GROUPS in octets.
const longestGroups = 4 + 4*65535

// setPortGroups executes SET TARGET PORT GROUPS: all changes of the list, or none.
func (u *Unit) setPortGroups(t *Task) Sense {
	const head, entry = 4, 4
	if len(t.Data) == 0 {
		return Sense{}
	}
	if len(t.Data) < head || (len(t.Data)-head)%entry != 0 {
		return Sense{Key: IllegalRequest, Code: scsi.ParameterListLengthError}
	}
	for at := head; at < len(t.Data); at += entry {
		s := scsi.AccessState(t.Data[at] & 0x0f)
		if settable(s) != nil || s == scsi.Transition {
			return badParameter(at)
		}
		if u.group(binary.BigEndian.Uint16(t.Data[at+2:])) == nil {
			return badParameter(at + 2)
		}
	}
	for at := head; at < len(t.Data); at += entry {
		u.setAccess(u.group(binary.BigEndian.Uint16(t.Data[at+2:])), scsi.AccessState(t.Data[at]&0x0f), byInitiator, t.Nexus)
	}
	return Sense{}
}
