package unit

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
)

// Vital product data pages.
var vpdPages = []struct {
	code byte
	fill func(*Unit, *Nexus) []byte // the page without its header
}{
	{0x00, nil}, // supported pages
	{0x80, (*Unit).serialPage},
	{0x83, (*Unit).identificationPage},
	{0xb0, (*Unit).limitsPage},
	{0xb1, (*Unit).characteristicsPage},
	{0xb2, (*Unit).provisioningPage},
	{0x86, (*Unit).extendedPage},
}

// vpd returns a page of vital product data (SPC-4 §7.8).
func (u *Unit) vpd(code byte, n *Nexus) ([]byte, bool) {
	var body []byte
	found := false
	for _, p := range vpdPages {
		if p.code == code {
			found = true
			if p.fill != nil {
				body = p.fill(u, n)
			}
		}
	}
	if !found {
		return nil, false
	}
	if code == 0 {
		body = supportedPages()
	}
	b := make([]byte, 4, 4+len(body))
	if u.conf.Backend == nil {
		b[0] = noUnit
	}
	b[1] = code
	binary.BigEndian.PutUint16(b[2:], uint16(len(body)))
	return append(b, body...), true
}

// supportedPages returns the codes of vpdPages in ascending order (SPC-4 §7.8.14).
func supportedPages() (codes []byte) {
	for code := range 256 {
		for _, p := range vpdPages {
			if int(p.code) == code {
				codes = append(codes, p.code)
			}
		}
	}
	return codes
}

// serialPage is page 80h (SPC-4 §7.8.13).
func (u *Unit) serialPage(*Nexus) []byte { return []byte(u.conf.Serial) }

// Code sets and types of designators (SPC-4 §7.8.5.1).
const (
	binarySet = 1
	asciiSet  = 2
	utf8Set   = 3

	typeT10       = 1
	typeNAA       = 3
	typePort      = 4
	typePortGroup = 5
	typeName      = 8

	ofUnit   = 0x00
	ofPort   = 0x10
	ofTarget = 0x20

	protocolISCSI = 5
	withProtocol  = 0x80 // PIV
)

// identificationPage is page 83h (SPC-4 §7.8.5).
func (u *Unit) identificationPage(n *Nexus) []byte {
	naa := u.identifier()
	b := designator(nil, binarySet, ofUnit|typeNAA, naa[:])
	t10 := make([]byte, 8, 8+maxSerial)
	pad(t10, u.conf.Vendor)
	b = designator(b, asciiSet, ofUnit|typeT10, append(t10, u.conf.Serial...))
	group := binary.BigEndian.AppendUint32(nil, uint32(n.port))
	b = designator(b, binarySet, withProtocol|ofPort|typePort, group)
	b = designator(b, binarySet, withProtocol|ofPort|typePortGroup, group)
	if u.conf.Target == "" {
		return b
	}
	var tag [4]byte
	hex4(tag[:], n.port)
	b = designator(b, utf8Set, withProtocol|ofPort|typeName, name(u.conf.Target+",t,0x"+string(tag[:])))
	return designator(b, utf8Set, withProtocol|ofTarget|typeName, name(u.conf.Target))
}

// designator appends a designation descriptor.
func designator(b []byte, set, kind byte, value []byte) []byte {
	first := set
	if kind&withProtocol != 0 {
		first |= protocolISCSI << 4
	}
	b = append(b, first, kind, 0, byte(len(value)))
	return append(b, value...)
}

// name returns a SCSI name string: terminated and padded with zeros to a multiple of 4
// octets (SPC-4 §7.8.5.11). A longer name than 252 octets is cut.
func name(s string) []byte {
	b := append([]byte(s[:min(len(s), 251)]), 0)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// hex4 writes v as four hexadecimal digits.
func hex4(b []byte, v uint16) {
	const digits = "0123456789ABCDEF"
	for i := range 4 {
		b[i] = digits[v>>(12-4*i)&0xf]
	}
}

// identifier returns the NAA locally assigned identifier (SPC-4 §7.8.5.6.4): 3h, and 60
// bits that target name and serial number determine.
func (u *Unit) identifier() (id [8]byte) {
	sum := sha256.Sum256([]byte(u.conf.Target + "\x00" + u.conf.Serial))
	copy(id[:], sum[:])
	id[0] = 0x30 | id[0]&0x0f
	return id
}

// extendedPage is page 86h (SPC-4 §7.8.7).
func (u *Unit) extendedPage(*Nexus) []byte {
	b := make([]byte, 60)
	b[1] = 0x07 // HEADSUP, ORDSUP, SIMPSUP
	b[2] = 0x01 // V_SUP: a volatile cache
	return b
}

// Limits that the unit reports.
const (
	maxUnmapDescriptors = 128
	maxUnmapBlocks      = 1 << 20
	maxCompareBlocks    = 255
)

// limitsPage is page B0h (SBC-3 §6.6.4).
func (u *Unit) limitsPage(*Nexus) []byte {
	b := make([]byte, 60)
	b[1] = u.maxCompare()
	most := uint32(u.conf.MaxTransfer >> u.shift)
	if u.conf.Backend == nil {
		return b
	}
	put := binary.BigEndian.PutUint32
	b[0] = 0x01                                   // WSNZ is 1: WRITE SAME of 0 blocks is refused
	binary.BigEndian.PutUint16(b[2:], 8)          // optimal transfer length granularity
	put(b[4:], most)                              // maximum transfer length
	put(b[8:], min(most, uint32(1<<20)>>u.shift)) // optimal transfer length
	if u.thin() {
		put(b[16:], maxUnmapBlocks)
		put(b[20:], maxUnmapDescriptors)
		put(b[24:], uint32(max(1, 4096>>u.shift))) // optimal unmap granularity
	}
	binary.BigEndian.PutUint64(b[32:], u.maxSame())
	put(b[40:], u.maxAtomic())
	put(b[48:], 1) // atomic transfer length granularity
	return b
}

// maxCompare is MAXIMUM COMPARE AND WRITE LENGTH.
func (u *Unit) maxCompare() byte {
	return byte(min(maxCompareBlocks, u.conf.MaxTransfer>>u.shift/2))
}

// maxSame is MAXIMUM WRITE SAME LENGTH.
func (u *Unit) maxSame() uint64 { return math.MaxUint16 }

// maxAtomic is MAXIMUM ATOMIC TRANSFER LENGTH.
func (u *Unit) maxAtomic() uint32 {
	return uint32(min(u.conf.MaxTransfer>>u.shift, math.MaxUint16))
}

// thin reports whether the unit is thin provisioned.
func (u *Unit) thin() bool {
	_, ok := u.conf.Backend.(Discarder)
	return ok
}

// characteristicsPage is page B1h (SBC-3 §6.6.2).
func (u *Unit) characteristicsPage(*Nexus) []byte {
	b := make([]byte, 60)
	binary.BigEndian.PutUint16(b, u.conf.RotationRate)
	b[3] = 0x40 // WABEREQ: reads succeed after a block erase
	b[4] = 0x02 // FUAB: SYNCHRONIZE CACHE makes earlier FUA writes stable
	return b
}

// provisioningPage is page B2h (SBC-3 §6.6.5).
func (u *Unit) provisioningPage(*Nexus) []byte {
	b := make([]byte, 4)
	if u.thin() {
		b[1] = 0xe4 // LBPU, LBPWS, LBPWS10; LBPRZ: unmapped blocks read as zero
		b[2] = 0x02 // thin provisioned
	}
	return b
}
