package rawpeer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Marked is one direction of a stream with Markers (RFC 5044 §4.3). A Marker is at the
// start of every 512 octets, which include the Marker. The zero value is at the first
// octet of full operation.
type Marked struct {
	at int // number of octets so far

	// Spoil is added to every pointer that FPDU writes.
	Spoil uint16
}

const (
	spacing   = 512
	markerLen = 4
)

// FPDU returns an FPDU with Markers for the present position in the stream.
func (m *Marked) FPDU(ulpdu []byte) []byte {
	plain := FPDU(ulpdu)
	plain = plain[:len(plain)-4] // the CRC of plain does not cover Markers
	var out []byte
	begun := 0
	for i, octet := range plain {
		out = m.mark(out, len(out)-begun)
		if i == 0 {
			begun = len(out)
		}
		out = append(out, octet)
		m.at++
	}
	out = m.mark(out, len(out)-begun)
	m.at += 4
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// mark appends a Marker if one is due. A Marker in front of an FPDU contains 0, because
// it has no distance from the FPDU's start.
func (m *Marked) mark(out []byte, back int) []byte {
	if m.at%spacing != 0 {
		return out
	}
	m.at += markerLen
	out = append(out, 0, 0)
	return binary.BigEndian.AppendUint16(out, uint16(back)+m.Spoil)
}

// Read reads an FPDU, checks its Markers and its CRC, and returns its ULPDU.
func (m *Marked) Read(from io.Reader) ([]byte, error) {
	r := marks{Marked: m, from: from}
	head, err := r.next(2)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head))
	rest, err := r.next((2+n+3)&^3 - 2)
	if err != nil {
		return nil, err
	}
	if err := r.marker(); err != nil { // a Marker in front of the CRC
		return nil, err
	}
	want := crc32.Checksum(r.seen, castagnoli)
	crc, err := r.next(4)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(crc) != want {
		return nil, fmt.Errorf("bad CRC in an FPDU of %d octets with Markers", len(r.seen))
	}
	return rest[:n], nil
}

// marks reads one FPDU with Markers.
type marks struct {
	*Marked
	from  io.Reader
	seen  []byte // the whole FPDU, including Markers
	begun int    // index in seen of the FPDU's length field
	any   bool   // an octet of the FPDU other than a Marker has been read
}

// next returns n octets without Markers.
func (r *marks) next(n int) (out []byte, err error) {
	for range n {
		if err := r.marker(); err != nil {
			return nil, err
		}
		if !r.any {
			r.any, r.begun = true, len(r.seen)
		}
		if err := r.read(1); err != nil {
			return nil, err
		}
		out = append(out, r.seen[len(r.seen)-1])
	}
	return out, nil
}

// marker reads a Marker if one is due.
func (r *marks) marker() error {
	if r.at%spacing != 0 {
		return nil
	}
	want := 0
	if r.any {
		want = len(r.seen) - r.begun
	}
	if err := r.read(markerLen); err != nil {
		return err
	}
	m := r.seen[len(r.seen)-markerLen:]
	if m[0] != 0 || m[1] != 0 || int(binary.BigEndian.Uint16(m[2:])) != want {
		return fmt.Errorf("the Marker %x at octet %d does not point back %d", m, r.at-markerLen, want)
	}
	return nil
}

func (r *marks) read(n int) error {
	b := make([]byte, n)
	_, err := io.ReadFull(r.from, b)
	r.seen = append(r.seen, b...)
	r.at += n
	return err
}
