package scsi

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Inquiry is the standard INQUIRY data (SPC-4 §6.6.2).
type Inquiry struct {
	Qualifier Qualifier
	Type      DeviceType
	Removable bool
	Version   uint8 // 5: SPC-3, 6: SPC-4
	TPGS      uint8 // 0: no ALUA; 1: implicit; 2: explicit; 3: both
	ThirdCopy bool  // 3PC: EXTENDED COPY
	Protect   bool  // protection information
	CmdQueue  bool  // task attributes other than untagged

	Vendor, Product, Revision string // without the spaces behind

	Standards []uint16 // version descriptors (SPC-4 §6.6.2, table 142)
}

// Qualifier is a peripheral qualifier, three bits (SPC-4 table 140).
type Qualifier uint8

const (
	Connected    Qualifier = 0 // the device is there
	Disconnected Qualifier = 1 // the target could have such a device at the LUN
	NoUnit       Qualifier = 3 // the target cannot have a device at the LUN
)

// DeviceType is a peripheral device type, five bits (SPC-4 table 141).
type DeviceType uint8

const (
	DiskDevice    DeviceType = 0x00
	CDDevice      DeviceType = 0x05
	ArrayDevice   DeviceType = 0x0c // tgtd's LUN 0
	WellKnownUnit DeviceType = 0x1e
	UnknownDevice DeviceType = 0x1f
)

var deviceTypes = map[DeviceType]string{
	DiskDevice: "disk", CDDevice: "CD or DVD", ArrayDevice: "storage array controller", WellKnownUnit: "well known logical unit", UnknownDevice: "no device",
}

func (t DeviceType) String() string {
	if name := deviceTypes[t]; name != "" {
		return name
	}
	return fmt.Sprintf("device type %#02x", uint8(t))
}

// The octets of the standard INQUIRY data.
const (
	inquiryVendor    = 8
	inquiryProduct   = 16
	inquiryRevision  = 32
	inquiryStandards = 58
	standardsCount   = 8
	deviceTypeMask   = 0x1f
	qualifierShift   = 5

	// InquiryLen is the length in octets that all targets send.
	InquiryLen = 36
	// MaxInquiryLen is the length in octets with all version descriptors.
	MaxInquiryLen = 96
)

// ParseInquiry reads standard INQUIRY data.
func ParseInquiry(b []byte) (q Inquiry, err error) {
	if len(b) < InquiryLen {
		return Inquiry{}, short("standard INQUIRY data", len(b), InquiryLen)
	}
	q = Inquiry{
		Qualifier: Qualifier(b[0] >> qualifierShift), Type: DeviceType(b[0] & deviceTypeMask),
		Removable: b[1]&0x80 != 0, Version: b[2],
		TPGS: b[5] >> 4 & 3, ThirdCopy: b[5]&0x08 != 0, Protect: b[5]&0x01 != 0, CmdQueue: b[7]&0x02 != 0,
		Vendor: text(b[inquiryVendor:inquiryProduct]), Product: text(b[inquiryProduct:inquiryRevision]), Revision: text(b[inquiryRevision:InquiryLen]),
	}
	b = b[:min(len(b), 5+int(b[4]))]
	for i := range standardsCount {
		at := inquiryStandards + 2*i
		if at+2 > len(b) {
			break
		}
		if v := binary.BigEndian.Uint16(b[at:]); v != 0 {
			q.Standards = append(q.Standards, v)
		}
	}
	return q, nil
}

// text reads a left-aligned ASCII field (SPC-4 §4.3.1).
func text(b []byte) string { return strings.TrimRight(string(b), " \x00") }

// short is the error for data that end too early.
func short(what string, have, need int) error {
	return fmt.Errorf("scsi: %s of %d octets: at least %d are needed", what, have, need)
}
