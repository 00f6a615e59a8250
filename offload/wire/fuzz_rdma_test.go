package wire_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// Append writes version 1 and no reserved bits; these leave those of a segment
// out.
const (
	ddpMeaning   = 0xc0
	rdmapMeaning = 0x0f
)

func FuzzTagged(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, data, ok := wire.ParseTagged(b)
		if !ok {
			return
		}
		fields := wire.TaggedFields{Last: h.Last(), Opcode: h.Opcode(), STag: h.STag(), TO: h.TO()}
		sameSegment(t, b, append(fields.Append(nil), data...))
	})
}

func FuzzUntagged(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, data, ok := wire.ParseUntagged(b)
		if !ok {
			return
		}
		fields := wire.UntaggedFields{Last: h.Last(), Opcode: h.Opcode(), Invalidate: h.Invalidate(),
			Queue: h.Queue(), MSN: h.MSN(), MO: h.MO()}
		sameSegment(t, b, append(fields.Append(nil), data...))
	})
}

func sameSegment(t *testing.T, b, again []byte) {
	t.Helper()
	if len(b) != len(again) || (b[0]^again[0])&ddpMeaning != 0 || (b[1]^again[1])&rdmapMeaning != 0 || !bytes.Equal(b[2:], again[2:]) {
		t.Errorf("% x became % x", b, again)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := wire.ParseReadRequest(b)
		if again := r.Append(nil); ok && !bytes.Equal(b, again) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

func FuzzAtomic(f *testing.F) {
	f.Add(wire.AtomicRequestFields{Op: wire.CmpSwap, ID: 1, STag: 2, TO: 8, Data: 3, Mask: 4, Compare: 5, CompareMask: 6}.Append(nil))
	f.Add(wire.AtomicResponseFields{ID: 1, Value: 2}.Append(nil))
	f.Add(wire.AppendImmediate(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := wire.ParseAtomicRequest(b); ok {
			again := r.Append(nil)
			copy(b, again[:4]) // the reserved bits
			if b[3]&0x0f != uint8(r.Op) || !bytes.Equal(b, again) {
				t.Errorf("% x became % x", b, again)
			}
		}
		if r, ok := wire.ParseAtomicResponse(b); ok && !bytes.Equal(b, r.Append(nil)) {
			t.Errorf("% x became % x", b, r.Append(nil))
		}
		if v, ok := wire.ParseImmediate(b); ok && !bytes.Equal(b, wire.AppendImmediate(nil, v)) {
			t.Errorf("% x became % x", b, wire.AppendImmediate(nil, v))
		}
	})
}

func FuzzTerminate(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := wire.ParseTerminate(b)
		if !ok {
			return
		}
		again, ok := wire.ParseTerminate(p.Append(nil))
		if again.Swapped && p.Header == nil && p.ReadRequest == nil {
			// A word without meaning in the RFC's order, and with one in siw's.
			again.Layer, again.Type, again.Swapped = again.Type, again.Layer, false
		}
		p.Ambiguous, again.Ambiguous = false, false // depends on what followed the word, too
		if p.Swapped = false; !ok || !reflect.DeepEqual(p, again) {
			t.Errorf("%+v became %+v", p, again)
		}
	})
}

func FuzzMPA(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, ok := wire.ParseMPA(b)
		if !ok {
			return
		}
		if again := append(mpaFields(h).Append(nil), rest...); !bytes.Equal(b, again) {
			t.Errorf("% x became % x", b, again)
		}
		e, private, ok := wire.ParseMPAEnhanced(rest)
		if again := append(e.Append(nil), private...); ok && !bytes.Equal(rest, again) {
			t.Errorf("% x became % x", rest, again)
		}
	})
}
