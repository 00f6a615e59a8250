package scsi

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// The pages of vital product data that a disk has.
const (
	PageSupported       uint8 = 0x00 // SPC-4 §7.8.14
	PageSerial          uint8 = 0x80 // SPC-4 §7.8.13
	PageIdentification  uint8 = 0x83 // SPC-4 §7.8.5
	PageExtended        uint8 = 0x86 // SPC-4 §7.8.7
	PageLimits          uint8 = 0xb0 // SBC-3 §6.6.4
	PageCharacteristics uint8 = 0xb1 // SBC-3 §6.6.2
	PageProvisioning    uint8 = 0xb2 // SBC-3 §6.6.5
)

const vpdHeadLen = 4

// VPD returns the body of a page of vital product data, without the header. The body
// aliases b. It is shorter than the page if the allocation length was.
func VPD(page uint8, b []byte) (body []byte, err error) {
	if len(b) < vpdHeadLen {
		return nil, short("VPD page", len(b), vpdHeadLen)
	}
	if b[1] != page {
		return nil, fmt.Errorf("scsi: VPD page %02Xh instead of %02Xh", b[1], page)
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	return b[vpdHeadLen:min(len(b), vpdHeadLen+n)], nil
}

// ParseSupported reads page 00h: the numbers of the pages that the unit has.
func ParseSupported(b []byte) (pages []uint8, err error) {
	body, err := VPD(PageSupported, b)
	return slices.Clone(body), err
}

// ParseSerial reads page 80h: the serial number of the unit.
func ParseSerial(b []byte) (string, error) {
	body, err := VPD(PageSerial, b)
	return text(body), err
}

// Extended is the part of page 86h that says what the unit does with task attributes and
// caches.
type Extended struct {
	HeadOfQueue, Ordered, Simple bool // task attributes that the unit has
	VolatileCache                bool // V_SUP
	NonVolatileCache             bool // NV_SUP
}

// ParseExtended reads page 86h.
func ParseExtended(b []byte) (e Extended, err error) {
	body, err := VPD(PageExtended, b)
	if err != nil {
		return Extended{}, err
	}
	if len(body) < 3 {
		return Extended{}, short("VPD page 86h", len(body), 3)
	}
	return Extended{
		HeadOfQueue: body[1]&0x04 != 0, Ordered: body[1]&0x02 != 0, Simple: body[1]&0x01 != 0,
		VolatileCache: body[2]&0x01 != 0, NonVolatileCache: body[2]&0x02 != 0,
	}, nil
}

// Association is what a designator names, two bits (SPC-4 table 535).
type Association uint8

const (
	OfUnit   Association = 0
	OfPort   Association = 1
	OfTarget Association = 2
)

// DesignatorType is the type of a designator, four bits (SPC-4 table 536).
type DesignatorType uint8

const (
	DesignatorVendor     DesignatorType = 0
	DesignatorT10        DesignatorType = 1
	DesignatorEUI64      DesignatorType = 2
	DesignatorNAA        DesignatorType = 3
	DesignatorPort       DesignatorType = 4 // relative target port identifier
	DesignatorPortGroup  DesignatorType = 5
	DesignatorUnitGroup  DesignatorType = 6
	DesignatorMD5        DesignatorType = 7
	DesignatorSCSIName   DesignatorType = 8
	DesignatorProtocol   DesignatorType = 9
	DesignatorUUID       DesignatorType = 10
	designatorTypeMask                  = 0x0f
	designatorHeadLen                   = 4
	codeSetBinary                       = 1
	codeSetMask                         = 0x0f
	associationShift                    = 4
	associationMask                     = 3
	protocolIdentifierOK                = 0x80
)

// Designator is a designation descriptor of page 83h (SPC-4 §7.8.5.1).
type Designator struct {
	Association Association
	Type        DesignatorType
	Binary      bool // the code set is binary; else ASCII or UTF-8
	HasProtocol bool // PIV: Protocol is valid
	Protocol    uint8
	Value       []byte
}

// String returns the value: hexadecimal digits if it is binary, else the text.
func (d Designator) String() string {
	if d.Binary {
		return hex.EncodeToString(d.Value)
	}
	return text(d.Value)
}

// ParseIdentification reads page 83h. A descriptor that is cut off is left out.
func ParseIdentification(b []byte) (all []Designator, err error) {
	body, err := VPD(PageIdentification, b)
	if err != nil {
		return nil, err
	}
	for len(body) >= designatorHeadLen {
		end := designatorHeadLen + int(body[3])
		if end > len(body) {
			break
		}
		d := Designator{
			Association: Association(body[1] >> associationShift & associationMask), Type: DesignatorType(body[1] & designatorTypeMask),
			Binary: body[0]&codeSetMask == codeSetBinary, Value: slices.Clone(body[designatorHeadLen:end]),
		}
		if body[1]&protocolIdentifierOK != 0 {
			d.HasProtocol, d.Protocol = true, body[0]>>4
		}
		all, body = append(all, d), body[end:]
	}
	return all, nil
}

// preferred are the designators that name a unit everywhere, the best first.
var preferred = []DesignatorType{DesignatorNAA, DesignatorEUI64, DesignatorUUID, DesignatorSCSIName, DesignatorT10}

// UnitName returns the designator that best names the unit. ok is false if no designator
// does. Two paths with the same name lead to the same unit.
func UnitName(all []Designator) (d Designator, ok bool) {
	for _, t := range preferred {
		for _, d := range all {
			if d.Association == OfUnit && d.Type == t && len(d.Value) != 0 {
				return d, true
			}
		}
	}
	return Designator{}, false
}
