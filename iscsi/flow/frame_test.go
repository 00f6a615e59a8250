package flow

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// golden is an INQUIRY and its answer, captured between open-iscsi and tgtd with both
// digests. The data segment of the answer, 66 octets, is not in the record: tests make it.
const (
	goldenCommand = "01c10000 00000000 00000000 00000000 02000000 00000042 00000001 00000002 12000000 42000000 00000000 00000000 | af864301"
	goldenAnswer  = "25810000 00000042 00000000 00000000 02000000 ffffffff 00000002 00000002 00000082 00000000 00000000 00000000 | bc816e8d"
)

// TestSendsGolden: a sender writes what open-iscsi wrote.
func TestSendsGolden(t *testing.T) {
	want := octets(t, goldenCommand)
	if got := encode(both, pdu.Header(want[:48]), nil, nil); !bytes.Equal(got, want) {
		t.Errorf("sent\n%x, want\n%x", got, want)
	}
}

// TestReceivesEveryCut cuts a stream of two Data-In and a command at every octet, with
// and without digests.
func TestReceivesEveryCut(t *testing.T) {
	data := make([]byte, 66)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	for _, d := range []pdu.Digests{none, {Header: true}, {Data: true}, both} {
		first, second := pdu.Header(octets(t, goldenAnswer)[:48]), pdu.Header(octets(t, goldenAnswer)[:48])
		second.SetBufferOffset(37)
		command := pdu.Header(octets(t, goldenCommand)[:48])
		whole := slices.Concat(encode(d, first, nil, data[:37]), encode(d, command, bytes.Repeat([]byte{7}, 20), nil), encode(d, second, nil, data[37:]))
		for cut := range len(whole) + 1 {
			got := bytes.Repeat([]byte{0xee}, 70)
			l := listen(d, got[2:10], got[10:10], got[10:68])
			l.waits = cut % 3
			w := newWire()
			for _, part := range [][]byte{whole[:cut], whole[cut:]} {
				if len(part) != 0 {
					w.in = append(w.in, part)
				}
				for range 20 {
					if end := l.r.run(w); end != OK {
						t.Fatal(cut, end)
					}
				}
			}
			if !bytes.Equal(got[2:68], data) || got[1] != 0xee || got[68] != 0xee || fmt.Sprint(l.got) != "[SCSI Data-In: ok SCSI Command: ok SCSI Data-In: ok]" || len(w.in) != 0 {
				t.Fatalf("cut %d: %q, %x", cut, l.got, got)
			}
		}
	}
}

// TestFrames sends any PDU in any segments and receives it in any views.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := pdu.Digests{Header: rapid.Bool().Draw(t, "header digest"), Data: rapid.Bool().Draw(t, "data digest")}
		data := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "data")
		ahs := make([]byte, 4*rapid.IntRange(0, maxAHS/4).Draw(t, "words of AHS"))
		var h pdu.Header
		h.Reset(pdu.OpCommand)
		x := sender{digests: d}
		*x.header(pdu.OpCommand) = h
		x.extend(ahs)
		pieces := cuts(t, slices.Clone(data))
		x.begin(pieces, 0, len(data))
		w := newWire()
		w.max = rapid.IntRange(1, 1500).Draw(t, "segment")
		for {
			w.room = rapid.IntRange(0, 500).Draw(t, "room")
			left, ok := x.emit(w)
			if !ok {
				t.Fatal("unreadable")
			}
			if left {
				break
			}
			if rapid.Bool().Draw(t, "borrow") {
				if !x.borrow(make([]byte, len(data))) {
					t.Fatal("no room to borrow")
				}
				for _, p := range pieces {
					clear(p) // the memory of the command is free
				}
			}
			w.max = min(w.max, rapid.IntRange(1, 1500).Draw(t, "next segment"))
		}
		got := make([]byte, len(data))
		l := listen(d, cuts(t, got)...)
		for _, view := range cuts(t, w.out) {
			if len(view) != 0 {
				w.in = append(w.in, view)
			}
		}
		if end := l.r.run(w); end != OK || fmt.Sprint(l.got) != "[SCSI Command: ok]" || !bytes.Equal(got, data) {
			t.Fatalf("%v, %q, %d octets of data", end, l.got, len(data))
		}
	})
}

// cuts divides octets into pieces.
func cuts(t *rapid.T, b []byte) (pieces [][]byte) {
	for len(b) > 0 && len(pieces) < 15 {
		n := rapid.IntRange(0, len(b)).Draw(t, "piece")
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return append(pieces, b)
}

// TestReceiverRefuses what a header or a digest makes impossible. Nothing is placed if the
// header is bad.
func TestReceiverRefuses(t *testing.T) {
	in := pdu.Header(octets(t, goldenAnswer)[:48])
	edit := func(f func(h *pdu.Header)) pdu.Header { h := in; f(&h); return h }
	data := bytes.Repeat([]byte{1}, 66)
	flip := func(b []byte, i int) []byte { b = bytes.Clone(b); b[i] ^= 1; return b }
	long := edit(func(h *pdu.Header) { h.SetDataLength(1<<20 + 1) })
	fat := edit(func(h *pdu.Header) { h.SetAHSLength(68) })
	for _, c := range []struct {
		name  string
		bytes []byte
		end   Reason
		got   string
		dirty bool
	}{
		{"header digest", flip(encode(both, in, nil, data), 20), HeaderDigest, "[]", false},
		{"data digest", flip(encode(both, in, nil, data), 60), OK, "[SCSI Data-In: " + DataDigest.String() + "]", true},
		{"pad", flip(encode(both, in, nil, data), 52+67), OK, "[SCSI Data-In: " + DataDigest.String() + "]", true},
		{"too long", append(long[:], make([]byte, 4)...), DataTooLong, "[]", false},
		{"AHS too long", append(fat[:], make([]byte, 4)...), AHSTooLong, "[]", false},
		{"AHS of a Data-In", encode(both, in, make([]byte, 4), data), AHSTooLong, "[]", false},
		{"data of an R2T", encode(both, edit(func(h *pdu.Header) { h.Reset(pdu.OpR2T) }), nil, data), DataTooLong, "[]", false},
		{"opcode", encode(both, edit(func(h *pdu.Header) { h.Reset(0x0f) }), nil, data), BadOpcode, "[]", false},
		{"beyond the list", encode(both, edit(func(h *pdu.Header) { h.SetBufferOffset(1) }), nil, data), OK, "[SCSI Data-In: " + MemoryGone.String() + "]", true},
	} {
		got := make([]byte, 66)
		digests := both
		if c.end == DataTooLong || c.end == AHSTooLong && c.bytes[4] == 17 {
			digests.Header = len(c.bytes) > 60
		}
		l := listen(digests, got)
		if end := l.r.run(newWire(c.bytes)); end != c.end || fmt.Sprint(l.got) != c.got {
			t.Errorf("%s: %v, %q", c.name, end, l.got)
		}
		if dirty := !bytes.Equal(got, make([]byte, 66)); dirty != c.dirty {
			t.Errorf("%s: placed %v", c.name, dirty)
		}
	}
	got := make([]byte, 66)
	l := listen(both, got)
	l.refuse = OutOfBounds
	if end := l.r.run(newWire(encode(both, in, nil, data))); end != OK || fmt.Sprint(l.got) != "[SCSI Data-In: "+OutOfBounds.String()+"]" || got[0] != 0 {
		t.Errorf("refused by the role: %v, %q, %x", end, l.got, got)
	}
	l.refuse = BadOpcode
	if end := l.r.run(newWire(encode(both, in, nil, data))); end != BadOpcode {
		t.Errorf("ended by the role: %v", end)
	}
}

func TestFramesAllocateNothing(t *testing.T) {
	for _, pieces := range []int{1, 2} {
		t.Run(fmt.Sprint(pieces), func(t *testing.T) { allocateNothing(t, pieces) })
	}
}

func allocateNothing(t *testing.T, pieces int) {
	h := pdu.Header(octets(t, goldenAnswer)[:48])
	data, got := make([]byte, 4096), make([]byte, 4096)
	l := listen(both, got)
	if pieces == 2 {
		l = listen(both, got[:1000], got[1000:])
	}
	x := sender{digests: both}
	w, list := newWire(), [][]byte{data}
	in := make([][]byte, 1)
	l.r.role = quiet{l.r, l.buf}
	if n := testing.AllocsPerRun(100, func() {
		*x.header(pdu.OpDataIn) = h
		x.begin(list, 0, 4096)
		w.out = w.out[:0]
		x.emit(w)
		in[0] = w.out
		w.in = in
		if end := l.r.run(w); end != OK {
			t.Fatal(end)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// quiet is a role that places data and records nothing.
type quiet struct {
	r   *receiver
	buf [][]byte
}

func (q quiet) arrived(*pdu.Header, []byte) (Reason, bool) {
	if len(q.buf) == 1 {
		q.r.collect(q.buf[0])
	} else {
		q.r.place(q.buf, 0)
	}
	return OK, false
}

func (q quiet) complete(_ *pdu.Header, why Reason) (Reason, bool) { return why, false }

// TestEndAtTheEndOfAView: the reason that ends the connection is not lost when the bad PDU
// ends where a view ends.
func TestEndAtTheEndOfAView(t *testing.T) {
	in := pdu.Header(octets(t, goldenAnswer)[:48])
	l := listen(both)
	l.end = ControlDigest
	one := encode(both, in, nil, nil)
	if end := l.r.run(newWire(one, one)); end != ControlDigest || len(l.got) != 1 {
		t.Errorf("%v after %d PDUs, want %v after one", end, len(l.got), ControlDigest)
	}
}
