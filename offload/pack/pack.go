// Package pack encodes the state of protocol machines for another process of the same
// machine. One function names the fields of a state for both directions, so that encoder
// and decoder cannot disagree:
//
//	func (s *State) code(c *pack.Coder) {
//		pack.Uint(c, &s.Next)
//		c.Octets(&s.Rest, maxRest)
//		if c.Version() >= 2 {
//			c.Bool(&s.Lost)
//		}
//	}
//
// An encoding begins with 12 octets: its kind, its version and its length, each a
// little-endian number of 32 bits. Numbers in it are little-endian. The decoder trusts
// nothing: it checks every length and allocates no more than the octets that are there
// can justify. A newer program reads the encodings of an older one. An older program
// refuses those of a newer one.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt means that octets are no encoding, or a damaged one.
var ErrCorrupt = errors.New("corrupt encoding")

// ErrVersion means that an encoding is of a newer version than this program knows.
var ErrVersion = errors.New("version not known")

// Format is a kind of encoding.
type Format struct {
	Name    string // in errors
	Kind    uint32 // number of the kind
	Version uint32 // newest version, from 1 on; Encode writes it
}

const headLen = 12

// Encode appends the encoding of the value whose fields the function code names.
func (f Format) Encode(b []byte, code func(*Coder)) ([]byte, error) {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, f.Kind)
	b = binary.LittleEndian.AppendUint32(b, f.Version)
	b = binary.LittleEndian.AppendUint32(b, 0)
	c := &Coder{buf: b, version: f.Version, writes: true}
	code(c)
	n := len(c.buf) - at
	switch {
	case c.err != nil:
		return nil, fmt.Errorf("encode %s: %w", f.Name, c.err)
	case uint64(n) > 1<<32-1:
		return nil, fmt.Errorf("encode %s: %d octets are too many", f.Name, n)
	}
	binary.LittleEndian.PutUint32(c.buf[at+8:], uint32(n))
	return c.buf, nil
}

// Decode fills the value whose fields the function code names. The encoding must be all
// of b. The value keeps no reference to b. After an error the value is not valid.
func (f Format) Decode(b []byte, code func(*Coder)) error {
	if len(b) < headLen {
		return fmt.Errorf("decode %s: %w: %d octets are too few", f.Name, ErrCorrupt, len(b))
	}
	kind, version, n := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	switch {
	case kind != f.Kind:
		return fmt.Errorf("decode %s: %w: it is of kind %#x, not %#x", f.Name, ErrCorrupt, kind, f.Kind)
	case version > f.Version:
		return fmt.Errorf("decode %s: %w: it is version %d, and this program knows up to %d", f.Name, ErrVersion, version, f.Version)
	case version == 0 || uint64(n) != uint64(len(b)):
		return fmt.Errorf("decode %s: %w: version %d, %d octets of %d", f.Name, ErrCorrupt, version, len(b), n)
	}
	c := &Coder{buf: b[headLen:], version: version}
	if code(c); c.err == nil && len(c.buf) != 0 {
		c.Fail("%d octets behind the end", len(c.buf))
	}
	if c.err != nil {
		return fmt.Errorf("decode %s: %w", f.Name, c.err)
	}
	return nil
}

// Coder writes fields to an encoding, or reads them from one. After the first error it
// does nothing any more, and reading leaves the fields as they are.
type Coder struct {
	buf     []byte // written: all octets; read: the octets that are left
	version uint32
	writes  bool
	err     error
}

// Version returns the version of the encoding.
func (c *Coder) Version() uint32 { return c.version }

// Writes reports whether the Coder writes the fields, and does not read them.
func (c *Coder) Writes() bool { return c.writes }

// Fail makes the encoding or decoding fail, because a value is impossible.
func (c *Coder) Fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

// OK reports whether there was no error so far.
func (c *Coder) OK() bool { return c.err == nil }

// take returns the next n octets to read, or nil if there are fewer.
func (c *Coder) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.buf) {
		c.Fail("it ends within a field of %d octets", n)
		return nil
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

// number codes the low n octets of v, and returns the value.
func (c *Coder) number(v uint64, n int) uint64 {
	if c.err != nil {
		return v
	}
	var word [8]byte
	if c.writes {
		binary.LittleEndian.PutUint64(word[:], v)
		c.buf = append(c.buf, word[:n]...)
		return v
	}
	b := c.take(n)
	if b == nil {
		return v
	}
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:])
}
