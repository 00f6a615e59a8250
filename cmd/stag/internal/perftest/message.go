package perftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Lengths of messages in octets.
const (
	VersionLen = 16
	NumberLen  = 4
	MTULen     = 2
	DestLen    = 56
	LongDest   = 64 // length of a Dest from version 6.29 on
	FigureLen  = 8  // length of each message of a Report

	// MaxLen is longer than any message of any version.
	MaxLen = 1024
)

// Ours is the version that stag announces: the one for which this package was written.
const Ours = "6.06"

// Version is the version of perftest's exchange that a program announces. It is a decimal number: 6.1 is newer than
// 6.06.
type Version struct {
	Text   string
	number float64
}

// The versions whose exchange is known, and the first with a longer Dest.
const (
	oldest   = 5.70
	newest   = 7 // first version that is not known
	longDest = 6.29
)

// AppendVersion appends the message that announces Ours: the text, padded with zeros.
func AppendVersion(b []byte) []byte {
	return append(append(b, Ours...), make([]byte, VersionLen-len(Ours))...)
}

// ParseVersion parses a peer's message. It refuses versions with another exchange.
func ParseVersion(b []byte) (Version, error) {
	if len(b) != VersionLen {
		return Version{}, wrong(b, "version", VersionLen)
	}
	text, _, _ := strings.Cut(string(b), "\x00")
	major, minor, ok := strings.Cut(text, ".")
	if !ok || !digits(major) || !digits(minor) {
		return Version{}, fmt.Errorf("the peer says that its version is %q: is it perftest?", text)
	}
	v := Version{Text: text}
	var err error
	if v.number, err = strconv.ParseFloat(text, 64); err != nil {
		return Version{}, fmt.Errorf("the peer says that its version is %q: is it perftest?", text)
	}
	if v.number < oldest || v.number >= newest {
		return Version{}, fmt.Errorf("the peer's perftest speaks version %s of the exchange, and stag %.2f to 6.x: use another perftest there, such as Debian's of %s", text, oldest, Ours)
	}
	return v, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// DestLen returns the length of a Dest between stag and a peer of this version, in octets.
func (v Version) DestLen() int {
	if v.number >= longDest {
		return LongDest
	}
	return DestLen
}

// AppendNumber appends a page size or the size of a cache line, in octets.
func AppendNumber(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

// ParseNumber parses a number from 1 to most. Errors name the number by what.
func ParseNumber(b []byte, what string, most int) (int, error) {
	if len(b) != NumberLen {
		return 0, wrong(b, what, NumberLen)
	}
	n := binary.BigEndian.Uint32(b)
	if n < 1 || uint64(n) > uint64(most) {
		return 0, fmt.Errorf("the peer says that its %s is %d octets, which must be 1 to %d: is it perftest?", what, n, most)
	}
	return int(n), nil
}

// AppendMTU appends libibverbs' number for the largest InfiniBand MTU that is at most octets, as a digit and a zero.
// It has no meaning over iWARP.
func AppendMTU(b []byte, octets int) []byte {
	digit := byte('1')
	for mtu := 512; mtu <= 4096 && mtu <= octets; mtu *= 2 {
		digit++
	}
	return append(b, digit, 0)
}

// CheckMTU returns an error if a peer's message is not an MTU. The value does not matter.
func CheckMTU(b []byte) error {
	if len(b) != MTULen {
		return wrong(b, "MTU", MTULen)
	}
	if b[0] < '0' || b[0] > '9' || b[1] != 0 {
		return fmt.Errorf("the peer says that its MTU is %q: is it perftest?", b)
	}
	return nil
}

// A Dest has the number of a QP and the address and key of its memory. The other fields are for InfiniBand. From 6.29 on, eight more
// octets follow the address.
//
//	0     4           8     12    16    20    24        32    48     52
//	| LID | out reads | QPN | PSN | key | pad | address | GID | SRQN | GID index |
type Dest struct {
	OutReads uint32 // number of outstanding Reads
	QPN      uint32
	Key      uint32
	Address  uint64
}

const (
	destReads   = 4
	destQPN     = 8
	destKey     = 16
	destAddress = 24
)

// Append appends d in the format for a peer of version v.
func (d Dest) Append(b []byte, v Version) []byte {
	at := len(b)
	b = append(b, make([]byte, v.DestLen())...)
	binary.BigEndian.PutUint32(b[at+destReads:], d.OutReads)
	binary.BigEndian.PutUint32(b[at+destQPN:], d.QPN)
	binary.BigEndian.PutUint32(b[at+destKey:], d.Key)
	binary.BigEndian.PutUint64(b[at+destAddress:], d.Address)
	return b
}

// ParseDest parses a Dest from a peer of version v.
func ParseDest(b []byte, v Version) (Dest, error) {
	if len(b) != v.DestLen() {
		return Dest{}, wrong(b, "memory", v.DestLen())
	}
	return Dest{
		OutReads: binary.BigEndian.Uint32(b[destReads:]),
		QPN:      binary.BigEndian.Uint32(b[destQPN:]),
		Key:      binary.BigEndian.Uint32(b[destKey:]),
		Address:  binary.BigEndian.Uint64(b[destAddress:]),
	}, nil
}

// A Report has what an end has measured over all its QPs. It is five messages of eight octets, big-endian. The last
// three are floating point.
type Report struct {
	Size       uint64  // size of a message in octets
	Iterations uint64  // number of messages
	Peak       float64 // highest bandwidth, in MiB or Gb a second: the options of the end that measured set the unit
	Average    float64 // average bandwidth, in the unit of Peak
	Mpps       float64 // message rate in millions of messages a second
}

// Figures is the number of messages in a Report.
const Figures = 5

// Figure returns message i of r.
func (r Report) Figure(i int) []byte {
	v := [Figures]uint64{r.Size, r.Iterations, math.Float64bits(r.Peak), math.Float64bits(r.Average), math.Float64bits(r.Mpps)}
	return binary.BigEndian.AppendUint64(nil, v[i])
}

// SetFigure parses message i of a peer's Report. It stores 0 for an impossible floating-point number: perftest
// divides by times that may be 0.
func (r *Report) SetFigure(i int, b []byte) error {
	if len(b) != FigureLen {
		return wrong(b, "result", FigureLen)
	}
	v := binary.BigEndian.Uint64(b)
	switch i {
	case 0:
		r.Size = v
	case 1:
		r.Iterations = v
	case 2:
		r.Peak = figure(v)
	case 3:
		r.Average = figure(v)
	case 4:
		r.Mpps = figure(v)
	}
	return nil
}

func figure(bits uint64) float64 {
	f := math.Float64frombits(bits)
	if !(f >= 0) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// Gbps returns the average in gigabits a second. It uses the message rate, so that the unit of the peer does not
// matter.
func (r Report) Gbps() float64 { return r.Mpps * 8e-3 * float64(r.Size) }

// PeakGbps returns the peak in gigabits a second, for either unit of the peer.
func (r Report) PeakGbps() float64 {
	if r.Average == 0 {
		return 0
	}
	return r.Gbps() * (r.Peak / r.Average)
}

func wrong(b []byte, what string, want int) error {
	return fmt.Errorf("the peer sent a message of %d octets instead of its %s of %d octets: is it perftest, and the same test?", len(b), what, want)
}

// Stride returns how far apart messages of a size begin in a QP's memory, in octets, and how many places there are.
// Both ends must have agreed on a page size and a cache line.
func Stride(size, page, line int) (octets, places int) {
	if size > page/2 {
		return 0, 1
	}
	octets = (size + line - 1) / line * line
	return octets, max(page/octets, 1)
}
