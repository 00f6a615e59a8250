package scsi

import (
	"encoding/binary"
	"fmt"
)

// AccessState is the asymmetric access state of a target port group (SPC-4 §5.15.2).
type AccessState uint8

const (
	Optimized    AccessState = 0x0
	NonOptimized AccessState = 0x1
	Standby      AccessState = 0x2
	Unavailable  AccessState = 0x3
	Offline      AccessState = 0xe
	Transition   AccessState = 0xf
)

var accessStates = map[AccessState]string{
	Optimized: "active/optimized", NonOptimized: "active/non-optimized", Standby: "standby", Unavailable: "unavailable", Offline: "offline", Transition: "transitioning",
}

func (s AccessState) String() string {
	if name := accessStates[s]; name != "" {
		return name
	}
	return fmt.Sprintf("access state %#x", uint8(s))
}

// PortGroup is a target port group.
type PortGroup struct {
	Number    uint16
	State     AccessState
	Preferred bool     // PREF
	Ports     []uint16 // relative target port identifiers
}

// ParsePortGroups reads the data of REPORT TARGET PORT GROUPS (SPC-4 §6.37), without the
// extended header. A group that is cut off is left out.
func ParsePortGroups(b []byte) (groups []PortGroup, err error) {
	const head, group, port = 4, 8, 4
	if len(b) < head {
		return nil, short("REPORT TARGET PORT GROUPS data", len(b), head)
	}
	n := uint64(binary.BigEndian.Uint32(b))
	b = b[head:]
	b = b[:min(n, uint64(len(b)))]
	for len(b) >= group {
		end := group + port*int(b[7])
		if end > len(b) {
			break
		}
		g := PortGroup{Number: binary.BigEndian.Uint16(b[2:]), State: AccessState(b[0] & 0x0f), Preferred: b[0]&0x80 != 0}
		for at := group; at < end; at += port {
			g.Ports = append(g.Ports, binary.BigEndian.Uint16(b[at+2:]))
		}
		groups, b = append(groups, g), b[end:]
	}
	return groups, nil
}

// AppendSetPortGroup appends the parameter list of SET TARGET PORT GROUPS for one group
// (SPC-4 §6.45), SetPortGroupLen octets.
func AppendSetPortGroup(b []byte, group uint16, s AccessState) []byte {
	b = append(b, 0, 0, 0, 0, uint8(s), 0)
	return binary.BigEndian.AppendUint16(b, group)
}

// SetPortGroupLen is the length of the parameter list for one group in octets.
const SetPortGroupLen = 8

// Support is the answer of REPORT SUPPORTED OPERATION CODES for one command (SPC-4
// §6.35.3).
type Support struct {
	Supported bool
	Usage     []byte // the CDB usage data: a 1 for each bit that the unit evaluates
}

// ParseSupport reads the data of REPORT SUPPORTED OPERATION CODES for one command.
func ParseSupport(b []byte) (s Support, err error) {
	const head, mask, standard, vendor = 4, 0x07, 0x03, 0x05
	if len(b) < head {
		return Support{}, short("REPORT SUPPORTED OPERATION CODES data", len(b), head)
	}
	if support := b[1] & mask; support == standard || support == vendor {
		s.Supported = true
		n := int(binary.BigEndian.Uint16(b[2:]))
		s.Usage = append(s.Usage, b[head:min(len(b), head+n)]...)
	}
	return s, nil
}
