package ddp_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

var be = binary.BigEndian

func tagged(ctrl, ulp byte, stag uint32, to uint64, payload string) []byte {
	return append(be.AppendUint64(be.AppendUint32([]byte{ctrl, ulp}, stag), to), payload...)
}

func untagged(ctrl, ulp byte, rest, queue, msn, mo uint32, payload string) []byte {
	b := []byte{ctrl, ulp}
	for _, v := range []uint32{rest, queue, msn, mo} {
		b = be.AppendUint32(b, v)
	}
	return append(b, payload...)
}

func TestParse(t *testing.T) { // RFC 5041 §4.2, §4.3
	for _, c := range []struct {
		name string
		b    []byte
		want ddp.Segment
		f    ddp.Fault
	}{
		{"tagged", tagged(0x81, 0x40, 7, 1<<63+9, "abc"), ddp.Segment{Tagged: true, Version: 1, STag: 7, TO: 1<<63 + 9, Payload: []byte("abc")}, ddp.OK},
		{"tagged, last, nothing", tagged(0xc1, 0x42, 1<<32-1, 0, ""),
			ddp.Segment{Tagged: true, Last: true, Opcode: wire.OpReadResponse, Version: 1, STag: 1<<32 - 1}, ddp.OK},
		{"untagged", untagged(0x01, 0x44, 5, 6, 7, 8, "x"),
			ddp.Segment{Opcode: wire.OpSendInvalidate, Version: 1, Invalidate: 5, Queue: 6, MSN: 7, MO: 8, Payload: []byte("x")}, ddp.OK},
		{"reserved bits", untagged(0x7d, 0x73, 0, 0, 1, 0, ""), ddp.Segment{Last: true, Opcode: wire.OpSend, Version: 1, MSN: 1}, ddp.OK},
		{"version of RDMAP is RDMAP's", untagged(0x41, 0xc3, 0, 0, 1, 0, ""), ddp.Segment{Last: true, Opcode: wire.OpSend, Version: 3, MSN: 1}, ddp.OK},
		{"tagged, version 0", tagged(0xc0, 0x40, 1, 2, ""), ddp.Segment{Tagged: true, Last: true, Version: 1, STag: 1, TO: 2}, ddp.TaggedVersion},
		{"tagged, version 3", tagged(0xc3, 0x40, 1, 2, ""), ddp.Segment{Tagged: true, Last: true, Version: 1, STag: 1, TO: 2}, ddp.TaggedVersion},
		{"untagged, version 2", untagged(0x42, 0x43, 0, 0, 1, 0, ""), ddp.Segment{Last: true, Opcode: wire.OpSend, Version: 1, MSN: 1}, ddp.UntaggedVersion},
	} {
		var s ddp.Segment
		n := 18
		if c.want.Tagged {
			n = 14
		}
		f := ddp.Parse(c.b, &s)
		if !bytes.Equal(s.Header, c.b[:n]) || s.Len() != len(c.b) || !bytes.Equal(s.Payload, c.want.Payload) {
			t.Errorf("%s: header %x, payload %x, length %d", c.name, s.Header, s.Payload, s.Len())
		}
		got := s
		got.Header, got.Payload, c.want.Payload = nil, nil, nil
		if f != c.f || !equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, f, c.want, c.f)
		}
	}
}

// equal compares all but the slices.
func equal(a, b ddp.Segment) bool {
	return a.Tagged == b.Tagged && a.Last == b.Last && a.Opcode == b.Opcode && a.Version == b.Version && a.STag == b.STag &&
		a.TO == b.TO && a.Queue == b.Queue && a.MSN == b.MSN && a.MO == b.MO && a.Invalidate == b.Invalidate
}

func TestShort(t *testing.T) {
	for n := range 18 {
		var s ddp.Segment
		if f := ddp.Parse(untagged(0x41, 0x43, 0, 0, 1, 0, "")[:n], &s); f != ddp.Short {
			t.Errorf("%d octets, untagged: %v", n, f)
		}
	}
	for n := 1; n < 14; n++ {
		var s ddp.Segment
		if f := ddp.Parse(tagged(0xc1, 0x40, 0, 0, "")[:n], &s); f != ddp.Short {
			t.Errorf("%d octets, tagged: %v", n, f)
		}
	}
}

// The error numbers of RFC 5041 §7.
func TestCodes(t *testing.T) {
	for f, want := range map[ddp.Fault][2]uint8{
		ddp.LocalFault: {0, 0}, ddp.BadSTag: {1, 0}, ddp.OutOfBounds: {1, 1}, ddp.WrongStream: {1, 2}, ddp.Wrap: {1, 3}, ddp.TaggedVersion: {1, 4},
		ddp.BadQueue: {2, 1}, ddp.NoBuffer: {2, 2}, ddp.BadMSN: {2, 3}, ddp.BadMO: {2, 4}, ddp.TooLong: {2, 5}, ddp.UntaggedVersion: {2, 6},
	} {
		if typ, code := f.Code(); typ != want[0] || code != want[1] {
			t.Errorf("%v has the code %d/%02x, want %d/%02x", f, typ, code, want[0], want[1])
		}
	}
	names := map[string]int{}
	for f := ddp.OK; f <= ddp.UntaggedVersion; f++ {
		names[f.String()]++
	}
	if names[""] != 0 || ddp.Fault(99).String() != "fault 99" {
		t.Errorf("a fault has no name: %v", names)
	}
	for f, want := range map[tpt.Fault]ddp.Fault{
		tpt.OK: ddp.OK, tpt.BadSTag: ddp.BadSTag, tpt.WrongPD: ddp.WrongStream, tpt.Wrap: ddp.Wrap, tpt.OutOfBounds: ddp.OutOfBounds,
	} {
		if got := ddp.Tagged(f); got != want {
			t.Errorf("%v is %v, want %v", f, got, want)
		}
	}
}

func TestQueue(t *testing.T) { // RFC 5041 §5.3
	q := ddp.NewQueue()
	octets := func(n int) []byte { return make([]byte, n) }
	type want struct {
		f        ddp.Fault
		length   uint32
		complete bool
		begun    bool
	}
	for i, c := range []struct {
		s ddp.Segment
		want
	}{
		{ddp.Segment{MSN: 0, Last: true}, want{f: ddp.BadMSN}},
		{ddp.Segment{MSN: 2, Last: true}, want{f: ddp.BadMSN}},
		{ddp.Segment{MSN: 1, MO: 1, Last: true}, want{f: ddp.BadMO}},
		{ddp.Segment{MSN: 1, Last: true}, want{complete: true}},
		{ddp.Segment{MSN: 1, Last: true}, want{f: ddp.BadMSN}}, // not twice
		{ddp.Segment{MSN: 2}, want{begun: true}},
		{ddp.Segment{MSN: 2, Payload: octets(10)}, want{begun: true}},
		{ddp.Segment{MSN: 2, MO: 9, Payload: octets(1)}, want{f: ddp.BadMO, begun: true}},
		{ddp.Segment{MSN: 2, MO: 11, Payload: octets(1)}, want{f: ddp.BadMO, begun: true}},
		{ddp.Segment{MSN: 3, Payload: octets(1)}, want{f: ddp.BadMSN, begun: true}},
		{ddp.Segment{MSN: 2, MO: 10, Payload: octets(5), Last: true}, want{length: 15, complete: true}},
		{ddp.Segment{MSN: 3, Payload: octets(1), Last: true}, want{length: 1, complete: true}},
	} {
		f := q.Expect(&c.s)
		var length uint32
		complete := false
		if f == ddp.OK {
			length, complete = q.Accept(&c.s)
		}
		if got := (want{f, length, complete, q.Begun()}); got != c.want {
			t.Errorf("segment %d: %+v, want %+v", i, got, c.want)
		}
	}
}

// A message that grows beyond 2^32-1 octets is too long for any buffer.
func TestQueueLongest(t *testing.T) {
	q := ddp.NewQueue()
	big := make([]byte, 1<<30)
	for i := range uint32(3) {
		s := ddp.Segment{MSN: 1, MO: i << 30, Payload: big}
		if f := q.Expect(&s); f != ddp.OK {
			t.Fatal(f)
		}
		q.Accept(&s)
	}
	if f := q.Expect(&ddp.Segment{MSN: 1, MO: 3 << 30, Payload: big}); f != ddp.TooLong {
		t.Errorf("2^32 octets: %v", f)
	}
	s := ddp.Segment{MSN: 1, MO: 3 << 30, Payload: big[1:], Last: true}
	if f := q.Expect(&s); f != ddp.OK {
		t.Fatal(f)
	}
	if n, complete := q.Accept(&s); n != 1<<32-1 || !complete {
		t.Errorf("length %d, complete %v", n, complete)
	}
}

// A message is cut into as few segments as possible. They are contiguous, and the
// last one is marked.
func TestMessage(t *testing.T) { // RFC 5041 §5.1
	for _, isTagged := range []bool{true, false} {
		head := 18
		if isTagged {
			head = 14
		}
		for _, length := range []int{0, 1, 49, 50, 51, 100, 101, 149} {
			m := ddp.Message{Tagged: isTagged, Opcode: wire.OpWrite, STag: 3, TO: 1000, Queue: 4, MSN: 5, Invalidate: 6, Len: uint32(length)}
			if m.Open() {
				t.Fatal("open before it has begun")
			}
			m.Begin()
			for at, done := 0, false; !done; {
				n := m.Next(head + 50)
				if n != min(50, length-at) || int(m.Sent()) != at || m.HeaderLen() != head || !m.Open() {
					t.Fatalf("length %d at %d: next %d, sent %d, header %d", length, at, n, m.Sent(), m.HeaderLen())
				}
				last := at+n == length
				ctrl := byte(1)
				if last {
					ctrl |= 0x40
				}
				want := untagged(ctrl, 0x40, 6, 4, 5, uint32(at), "")
				if isTagged {
					want = tagged(ctrl|0x80, 0x40, 3, 1000+uint64(at), "")
				}
				if got := m.Cut(nil, n); !bytes.Equal(got, want) {
					t.Fatalf("length %d at %d: %x, want %x", length, at, got, want)
				}
				at, done = at+n, last
				if m.Open() == last {
					t.Fatalf("length %d at %d: open %v", length, at, m.Open())
				}
			}
		}
	}
}

// FuzzParse: a parsed and rewritten header is the same except for reserved bits.
func FuzzParse(f *testing.F) {
	f.Add(tagged(0xc1, 0x40, 1, 2, "abc"))
	f.Add(untagged(0x41, 0x44, 1, 0, 1, 0, "abc"))
	f.Add([]byte{0x81})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ddp.Segment
		if f := ddp.Parse(b, &s); f != ddp.OK || s.Version != 1 {
			return
		}
		again := wire.UntaggedFields{Last: s.Last, Opcode: s.Opcode, Invalidate: s.Invalidate, Queue: s.Queue, MSN: s.MSN, MO: s.MO}.Append(nil)
		if s.Tagged {
			again = wire.TaggedFields{Last: s.Last, Opcode: s.Opcode, STag: s.STag, TO: s.TO}.Append(nil)
		}
		want := bytes.Clone(b)
		want[0] &^= 0x3c
		want[1] &^= 0x30
		if again = append(again, s.Payload...); !bytes.Equal(again, want) {
			t.Errorf("%x became %x", want, again)
		}
	})
}
