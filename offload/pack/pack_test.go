package pack

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
)

var format = Format{Name: "sample", Kind: 0x1234, Version: 2}

type colour uint16

// sample has a field of each kind.
type sample struct {
	Small  uint8
	Colour colour
	Wide   uint64
	Signed int
	Set    bool
	Rest   []byte
	Name   string
	Fixed  [3]byte
	List   []uint32
	Newer  uint32 // since version 2
}

func (s *sample) code(c *Coder) {
	Uint(c, &s.Small)
	Uint(c, &s.Colour)
	Uint(c, &s.Wide)
	Int(c, &s.Signed, -100, 100)
	c.Bool(&s.Set)
	c.Octets(&s.Rest, 10)
	c.Text(&s.Name, 10)
	c.Fixed(s.Fixed[:])
	List(c, &s.List, 4, func(c *Coder, n *uint32) { Uint(c, n) })
	if c.Version() >= 2 {
		Uint(c, &s.Newer)
	}
}

func filled() *sample {
	return &sample{Small: 1, Colour: 0x203, Wide: 1 << 63, Signed: -100, Set: true, Rest: []byte("rest"), Name: "name",
		Fixed: [3]byte{7, 8, 9}, List: []uint32{1, 1 << 31}, Newer: 5}
}

func encoded(t *testing.T, f Format, s *sample) []byte {
	t.Helper()
	b, err := f.Encode([]byte("before"), s.code)
	if err != nil {
		t.Fatal(err)
	}
	return b[len("before"):]
}

func TestFields(t *testing.T) {
	for _, s := range []*sample{filled(), {}} {
		b := encoded(t, format, s)
		var got sample
		if err := format.Decode(b, got.code); err != nil {
			t.Fatal(err)
		}
		if again := encoded(t, format, &got); !bytes.Equal(b, again) || got.Signed != s.Signed || got.Name != s.Name || !slices.Equal(got.List, s.List) {
			t.Errorf("%+v came back as %+v", s, got)
		}
	}
}

// TestVersions: a program reads what an older one has written, and refuses what a newer
// one has.
func TestVersions(t *testing.T) {
	old := format
	old.Version = 1
	got := sample{Newer: 9}
	if err := format.Decode(encoded(t, old, filled()), got.code); err != nil || got.Newer != 9 || got.List[1] != 1<<31 {
		t.Errorf("version 1 came as %+v: %v", got, err)
	}
	if err := old.Decode(encoded(t, format, filled()), got.code); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2 in a program of version 1: %v", err)
	}
}

// TestCorrupt: every cut, every impossible value and every octet too many is an error.
func TestCorrupt(t *testing.T) {
	b := encoded(t, format, filled())
	for n := range b {
		cut := slices.Clone(b[:n])
		if n >= headLen {
			cut[8], cut[9] = byte(n), byte(n>>8)
		}
		if err := format.Decode(cut, new(sample).code); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d of %d octets: %v", n, len(b), err)
		}
	}
	longer := append(slices.Clone(b), 0)
	longer[8]++
	for name, bad := range map[string][]byte{
		"an octet behind the end": longer,
		"another kind":            append([]byte{1}, b[1:]...),
		"another length":          append(slices.Clone(b), 0),
	} {
		if err := format.Decode(bad, new(sample).code); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range map[string]*sample{"a number too large": {Signed: 101}, "too many octets": {Rest: make([]byte, 11)}, "too long a list": {List: make([]uint32, 5)}} {
		if _, err := format.Encode(nil, s.code); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: no octets make the decoder panic, and what it accepts is encoded to the
// same octets.
func FuzzDecode(f *testing.F) {
	b, err := format.Encode(nil, filled().code)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s sample
		if format.Decode(b, s.code) != nil || b[4] != 2 {
			return
		}
		if again, err := format.Encode(nil, s.code); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x was accepted, and is encoded to %x: %v", b, again, err)
		}
	})
}

// TestErrors: the text and the identity of an error arrive, alone and wrapped.
func TestErrors(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	known := []error{one, two}
	for _, want := range []error{nil, one, fmt.Errorf("more: %w", two), errors.Join(one, two), errors.New("unknown")} {
		b, err := format.Encode(nil, func(c *Coder) { c.Error(&want, known) })
		if err != nil {
			t.Fatal(err)
		}
		got := errors.New("before")
		if err := format.Decode(b, func(c *Coder) { c.Error(&got, known) }); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || errors.Is(got, one) != errors.Is(want, one) || errors.Is(got, two) != errors.Is(want, two) {
			t.Errorf("%v came as %v", want, got)
		}
		if err := format.Decode(b, func(c *Coder) { c.Error(&got, known[:1]) }); errors.Is(want, two) && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v in a program that does not know it: %v", want, err)
		}
	}
}
