package mpa_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// numbered is a feed that knows positions.
type numbered struct {
	feed
	at uint32
}

func (n *numbered) Position() uint32          { return n.at }
func (n *numbered) Consume(k int)             { n.feed.Consume(k); n.at += uint32(k) }
func (n *numbered) Ahead() (stream.Run, bool) { panic("not used here") }
func (n *numbered) KeepBoundaries()           { panic("not used here") }
func crcOf(fpdu []byte) uint32                { return binary.BigEndian.Uint32(fpdu[len(fpdu)-wire.CRCLen:]) }
func (m *train) fpdu(i int) (begin, end int)  { return m.ends[i], m.ends[i+1] }

// train is a stream of random FPDUs.
type train struct {
	bytes  []byte
	ulpdus [][]byte
	ends   []int // offset at which each FPDU begins, and the end of the last one
}

func newTrain(r *rand.Rand, markers bool, n, most int) *train {
	fr, out := mpa.NewFramer(true, markers), &sink{}
	m := &train{ends: []int{0}}
	for range n {
		u := make([]byte, 14+r.IntN(most-13))
		for i := range u {
			u[i] = byte(r.Uint32())
		}
		frame(fr, out, u)
		m.ulpdus, m.ends = append(m.ulpdus, u), append(m.ends, len(out.bytes))
	}
	m.bytes = out.bytes
	return m
}

// found returns the indexes of the FPDUs that a Finder finds in the octets [from, to) of
// the stream, after the octets before consumed have arrived in order.
func (m *train) found(markers, whole bool, first uint32, consumed, from, to int) (list []int, err error) {
	d, s := mpa.NewDeframer(true, markers), &numbered{at: first}
	s.arrive(m.bytes[:consumed])
	for u, _ := d.Next(s); u != nil; u, _ = d.Next(s) {
		if t := d.Tail(s); t != (mpa.Tail{End: first + uint32(m.ends[len(list)+1]), CRC: crcOf(m.bytes[:m.ends[len(list)+1]])}) {
			return nil, fmt.Errorf("FPDU %d in order has the tail %+v", len(list), t)
		}
		list = append(list, 0)
		d.Done(s)
	}
	list = nil
	f := mpa.NewFinder(markers)
	f.Look(d, s, stream.Run{Octets: m.bytes[from:to], Position: first + uint32(from), Whole: whole})
	for u, t, ok := f.Next(); ok; u, t, ok = f.Next() {
		i := 0
		for i < len(m.ulpdus) && uint32(m.ends[i+1])+first != t.End {
			i++
		}
		if i == len(m.ulpdus) || !bytes.Equal(u, m.ulpdus[i]) || t.CRC != crcOf(m.bytes[:m.ends[i+1]]) {
			return nil, fmt.Errorf("an FPDU that was never sent, behind %v: %+v, % x", list, t, u)
		}
		list = append(list, i)
	}
	return list, nil
}

// inside returns the indexes of the FPDUs that lie in [from, to). With Markers, the list
// begins with the first FPDU that has a Marker.
func (m *train) inside(markers bool, from, to int) (list []int) {
	for i := range m.ulpdus {
		begin, end := m.fpdu(i)
		next := (begin + wire.MarkerSpacing - 1) / wire.MarkerSpacing * wire.MarkerSpacing
		if begin >= from && end <= to && (len(list) > 0 || !markers || next < end) {
			list = append(list, i)
		}
	}
	return list
}

// TestFinder: in a segment behind a hole the Finder finds every complete FPDU, if the
// segment begins with an FPDU, or from the first Marker on (RFC 5044 §4.3, §5).
func TestFinder(t *testing.T) {
	found := 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		markers := seed%2 == 0
		m := newTrain(r, markers, 12, 20+r.IntN(1400))
		from := m.ends[1+r.IntN(10)]
		if markers {
			from = 1 + r.IntN(len(m.bytes)-1) // Markers need no alignment
		}
		to := from + 1 + r.IntN(len(m.bytes)-from)
		consumed := r.IntN(from + 1)
		got, err := m.found(markers, true, r.Uint32(), consumed, from, to)
		if want := m.inside(markers, from, to); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d, Markers %v, ends %v, octets %d to %d: %v, found %v, want %v", seed, markers, m.ends, from, to, err, got, want)
		}
		found += len(got)
	}
	if found < 4000 {
		t.Errorf("only %d FPDUs were found: the test proves nothing", found)
	}
}

// TestFinderDoesNotGuess: payload that looks like an FPDU with a good CRC is not taken
// for one. Without Markers, the Finder looks only at the beginning of a segment.
func TestFinderDoesNotGuess(t *testing.T) {
	fake := newTrain(rand.New(rand.NewPCG(1, 1)), false, 1, 100)
	for _, markers := range []bool{false, true} {
		fr, out := mpa.NewFramer(true, markers), &sink{}
		frame(fr, out, append(make([]byte, 14), fake.bytes...))
		m := &train{bytes: out.bytes, ulpdus: [][]byte{nil}, ends: []int{0, len(out.bytes)}}
		from := bytes.Index(out.bytes, fake.bytes)
		if from < 0 {
			t.Fatal("the fake FPDU is not in the stream")
		}
		if got, err := m.found(markers, markers, 0, 0, from, len(out.bytes)); err != nil || len(got) != 0 {
			t.Errorf("Markers %v: %v, found %v", markers, err, got)
		}
	}
}

// TestFinderStopsAtAFault: behind a bad CRC, a bad Marker or an impossible length there
// is nothing to find, and the next run is not concerned.
func TestFinderStopsAtAFault(t *testing.T) {
	for _, markers := range []bool{false, true} {
		m := newTrain(rand.New(rand.NewPCG(7, 7)), markers, 6, 1400)
		for at := m.ends[1]; at < m.ends[2]; at++ {
			bad := &train{bytes: bytes.Clone(m.bytes), ulpdus: m.ulpdus, ends: m.ends}
			bad.bytes[at] ^= 0x41
			got, err := bad.found(markers, true, 5, 0, m.ends[1], len(m.bytes))
			for _, i := range got {
				if i == 1 {
					t.Fatalf("Markers %v, octet %d changed: the FPDU is found", markers, at)
				}
			}
			if err != nil || !markers && len(got) != 0 {
				t.Fatalf("Markers %v, octet %d changed: %v, found %v", markers, at, err, got)
			}
		}
	}
}

// FuzzFinder: whatever lies behind the hole, nothing panics, and what is found is an
// FPDU of the octets.
func FuzzFinder(f *testing.F) {
	m := newTrain(rand.New(rand.NewPCG(9, 9)), false, 3, 60)
	f.Add(false, true, uint16(0), m.bytes)
	f.Add(true, false, uint16(500), newTrain(rand.New(rand.NewPCG(9, 9)), true, 9, 200).bytes)
	f.Fuzz(func(t *testing.T, markers, whole bool, distance uint16, b []byte) {
		d, s := mpa.NewDeframer(true, markers), &numbered{at: 0xffffff00}
		finder := mpa.NewFinder(markers)
		finder.Look(d, s, stream.Run{Octets: b, Position: s.at + uint32(distance), Whole: whole})
		for u, tail, ok := finder.Next(); ok; u, tail, ok = finder.Next() {
			end := int(tail.End - s.at - uint32(distance))
			if end > len(b) || len(u) < 14 || crcOf(b[:end]) != tail.CRC {
				t.Fatalf("found % x with %+v in % x", u, tail, b)
			}
		}
	})
}
