package wire

import "encoding/binary"

// A VLAN tag behind an EtherType of TypeVLAN (IEEE 802.1Q §9.6):
//
//	0                                2      4
//	| priority 3, DEI 1, VLAN id 12  | type |
const (
	vlanTCI  = 0
	vlanType = 2
	VLANLen  = 4

	vlanPriorityShift = 13
	vlanDEI           = 1 << 12
	vlanID            = 1<<12 - 1

	// MaxVLAN is the largest VLAN id in use. 0 means "priority only", and 4095 is
	// reserved.
	MaxVLAN = 4094
)

// VLAN is a view of a VLAN tag without the EtherType in front of it.
type VLAN struct{ b []byte }

// ParseVLAN splits the octets behind an EtherType of TypeVLAN into the tag and the
// payload.
func ParseVLAN(b []byte) (h VLAN, payload []byte, ok bool) {
	if len(b) < VLANLen {
		return VLAN{}, nil, false
	}
	return VLAN{b[:VLANLen:VLANLen]}, b[VLANLen:], true
}

func (h VLAN) tci() uint16 { return binary.BigEndian.Uint16(h.b[vlanTCI:]) }

func (h VLAN) ID() uint16         { return h.tci() & vlanID }
func (h VLAN) Priority() uint8    { return uint8(h.tci() >> vlanPriorityShift) }
func (h VLAN) DropEligible() bool { return h.tci()&vlanDEI != 0 }
func (h VLAN) Type() EtherType    { return EtherType(binary.BigEndian.Uint16(h.b[vlanType:])) }

// VLANFields holds the fields of a VLAN tag to write.
type VLANFields struct {
	ID           uint16 // VLAN id, 0 to 4095
	Priority     uint8  // priority, 0 to 7
	DropEligible bool
	Type         EtherType
}

// Append appends the tag to b, which must end with an EtherType of TypeVLAN.
func (f VLANFields) Append(b []byte) []byte {
	tci := f.ID&vlanID | uint16(f.Priority)<<vlanPriorityShift
	if f.DropEligible {
		tci |= vlanDEI
	}
	b = binary.BigEndian.AppendUint16(b, tci)
	return binary.BigEndian.AppendUint16(b, uint16(f.Type))
}
