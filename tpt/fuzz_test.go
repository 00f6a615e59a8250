package tpt

import (
	"encoding/binary"
	"math/big"
	"testing"
)

// dice reads small numbers from the fuzzer's octets. After the last octet it returns
// zeros.
type dice struct{ b []byte }

func (d *dice) octet() (v byte) {
	if len(d.b) != 0 {
		v, d.b = d.b[0], d.b[1:]
	}
	return v
}

func (d *dice) word() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = d.octet()
	}
	return binary.BigEndian.Uint64(b[:])
}

// FuzzCheck registers regions and makes accesses as the octets say. It compares them
// with a model that uses big integers.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0xff, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0x3f, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16})
	f.Add([]byte("0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x1f0000\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	heap := make([]byte, 512)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newStage(t, Config{Entries: 16, Heap: heap, Seed: [32]byte{1}})
		other := s.domain()
		d := &dice{b}
		known := map[STag]Region{}
		var stags []STag
		for range d.octet() % 8 {
			r := Region{PD: s.pd, Start: d.word(), Rights: Rights(d.octet())}
			if d.octet()&1 != 0 {
				r.PD = other
			}
			if n, at := int(d.octet()), int(d.octet()); at&1 != 0 {
				r.Memory = heap[at : at+n]
			} else {
				r.Memory = make([]byte, n)
			}
			stag, err := s.Register(r)
			if err != nil {
				continue
			}
			stags = append(stags, stag)
			known[stag] = r
			if d.octet()&7 == 0 {
				if err := s.Invalidate(stag, r.PD); err != nil {
					t.Fatal(err)
				}
				delete(known, stag)
			}
		}
		for range 8 {
			a := Access{PD: s.pd, Right: Rights(1 << (d.octet() % 6)), TO: d.word(), Len: uint32(d.word() >> (d.octet() % 64))}
			a.STag = STag(d.word())
			if pick := d.octet(); len(stags) != 0 && pick != 0 {
				a.STag = stags[int(pick)%len(stags)]
				if r, ok := known[a.STag]; ok && pick&0x80 != 0 {
					a.PD, a.TO = r.PD, r.Start+a.TO%512 // near the region
				}
			}
			mem, f := s.Check(a)
			if want := model(known, a); f != want {
				t.Fatalf("%+v: %v, want %v", a, f, want)
			}
			if f == OK && a.Len != 0 {
				from := known[a.STag].Memory[a.TO-known[a.STag].Start:]
				if len(mem) != int(a.Len) || cap(mem) != len(mem) || len(mem) > len(from) || &mem[0] != &from[0] {
					t.Fatalf("%+v: %d octets, capacity %d, of other memory", a, len(mem), cap(mem))
				}
			} else if mem != nil {
				t.Fatalf("%+v: %v, and %d octets", a, f, len(mem))
			}
		}
	})
}

// model decides as Check does, with big integers.
func model(known map[STag]Region, a Access) Fault {
	r, ok := known[a.STag]
	low := new(big.Int).SetUint64(a.TO)
	high := new(big.Int).Add(low, big.NewInt(int64(a.Len)))
	first := new(big.Int).SetUint64(r.Start)
	end := new(big.Int).Add(first, big.NewInt(int64(len(r.Memory))))
	switch {
	case a.Len == 0:
		return OK
	case !ok:
		return BadSTag
	case r.PD != a.PD:
		return WrongPD
	case (r.Rights|LocalRead)&a.Right == 0:
		return NoRight
	case high.Cmp(new(big.Int).Lsh(big.NewInt(1), 64)) > 0:
		return Wrap
	case low.Cmp(first) < 0 || high.Cmp(end) > 0:
		return OutOfBounds
	}
	return OK
}
