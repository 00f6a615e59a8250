package hostile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
	"github.com/stag-rdma/stag/tpt"
)

// framing is a stream with an FPDU whose framing is wrong.
type framing struct {
	name  string
	sends func(v *victim) []byte
	want  string // the Terminate; "" means that none is possible and the victim closes
}

func framings() []framing {
	write := func(v *victim, n int) []byte {
		return rawpeer.FPDU(rawpeer.Write(uint32(v.open.RKey()), 0, bytes.Repeat([]byte{0xbb}, n)))
	}
	flip := func(at func(n int) int) func(v *victim) []byte {
		return func(v *victim) []byte {
			b := write(v, 101)
			b[at(len(b))] ^= 0x10
			return b
		}
	}
	length := func(n uint16) func(v *victim) []byte {
		return func(v *victim) []byte {
			b := write(v, 101)
			b[0], b[1] = byte(n>>8), byte(n)
			return b
		}
	}
	return []framing{
		{"length 0", length(0), "2/0/03"},
		{"length 1", length(1), "2/0/03"},
		{"length 13", length(13), "2/0/03"},
		{"length one less", length(114), "2/0/02"},
		{"length a lot less", length(60), "2/0/02"},
		{"length 65535, and the end", length(65535), ""},
		{"length one word more, and the end", length(119), ""},
		{"payload spoiled", flip(func(n int) int { return n - 12 }), "2/0/02"},
		{"STag spoiled", flip(func(int) int { return 4 }), "2/0/02"},
		{"padding spoiled", flip(func(n int) int { return n - 5 }), "2/0/02"},
		{"CRC spoiled", flip(func(n int) int { return n - 1 }), "2/0/02"},
		{"CRC of zero", func(v *victim) []byte {
			b := write(v, 101)
			return append(b[:len(b)-4], 0, 0, 0, 0)
		}, "2/0/02"},
		{"cut in the payload", func(v *victim) []byte { return write(v, 101)[:40] }, ""},
		{"cut in the length", func(v *victim) []byte { return write(v, 101)[:1] }, ""},
		{"cut in the CRC", func(v *victim) []byte { b := write(v, 101); return b[:len(b)-1] }, ""},
		{"no L segment", func(v *victim) []byte {
			v.expect(v.open, 0, []byte("half a Write"))
			return rawpeer.FPDU(rawpeer.TaggedSegment(wire.OpWrite, false, uint32(v.open.RKey()), 0, []byte("half a Write")))
		}, ""},
		{"half a Send", func(v *victim) []byte {
			v.expect(v.local, 0, []byte("half"))
			return rawpeer.FPDU(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, More: true}.With([]byte("half")))
		}, ""},
	}
}

func (c framing) run(r *rig) {
	v := newVictim(r)
	v.accept(usual, usualParams)
	v.Must(v.peer.Octets(c.sends(v)))
	if c.want == "" {
		v.Must(v.peer.Conn.CloseWrite())
		if end, err := v.peer.End(); err != nil || end != rawpeer.Reset {
			v.Errorf("the end is %v, %v; want a reset", end, err)
		}
		v.over()
		v.lost(rdmap.ErrTruncated)
	} else {
		t, err := v.peer.Terminated()
		v.Must(err)
		if t.String() != c.want || t.Header != nil || t.Request != nil {
			v.Errorf("the Terminate is %v, %+v; want %s", t, t, c.want)
		}
		v.peer.Conn.Close()
		v.over()
		v.blamed(false, c.want)
	}
	v.completed(nil, flushed)
	v.intact()
	v.bury()
}

func TestFraming(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range framings() {
			r.TB.(*testing.T).Run(c.name, func(t *testing.T) { c.run(r.with(t)) })
		}
	})
}

// traffic returns FPDUs of every kind: a Write in three segments, an empty Write, two Sends, and a Read of what was
// written. It records their effect on the victim's memory.
func traffic(v *victim) (out []byte, answer []byte) {
	data := make([]byte, 3000)
	rand.NewChaCha8([32]byte{1}).Read(data)
	stag := uint32(v.open.RKey())
	v.expect(v.open, 5, data)
	v.expect(v.local, 0, data[:recvLen])
	v.expect(v.local, recvLen, data[:1])
	out = rawpeer.FPDUs(
		rawpeer.TaggedSegment(wire.OpWrite, false, stag, 5, data[:1000]),
		rawpeer.TaggedSegment(wire.OpWrite, false, stag, 1005, data[1000:1001]),
		rawpeer.TaggedSegment(wire.OpWrite, true, stag, 1006, data[1001:]),
		rawpeer.Write(0xdeadbeef, 1<<64-1, nil),
		rawpeer.Untagged{Op: wire.OpSend, MSN: 1, More: true}.With(data[:63]),
		rawpeer.Untagged{Op: wire.OpSend, MSN: 1, MO: 63}.With(data[63:64]),
		rawpeer.Send(2, data[:1]),
		rawpeer.ReadRequest(1, rawpeer.Read{SinkSTag: 77, SinkTO: 1 << 40, Size: 3000, SourceSTag: tpt.STag(stag), SourceTO: 5}),
	)
	return out, data
}

// readBack reads a Response and demands that it holds want.
func (v *victim) readBack(stag uint32, to uint64, want []byte) {
	v.Helper()
	for at := 0; at < len(want); {
		ulpdu, err := v.peer.FPDU()
		v.Must(err)
		h, payload, ok := wire.ParseTagged(ulpdu)
		if !ok || h.Opcode() != wire.OpReadResponse || uint32(h.STag()) != stag || h.TO() != to+uint64(at) ||
			h.Last() != (at+len(payload) == len(want)) || !bytes.Equal(payload, want[at:at+len(payload)]) {
			v.Fatalf("the Response at %d is wrong: %x", at, ulpdu)
		}
		at += len(payload)
	}
}

// A stream has the same meaning however it is divided into segments.
func TestCuts(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, n := range []int{1, 2, 3, 7, 64, 1000, 1460, 1 << 20} {
			r.TB.(*testing.T).Run(fmt.Sprintf("pieces of %d", n), func(t *testing.T) {
				v := newVictim(r.with(t))
				v.accept(usual, usualParams)
				out, answer := traffic(v)
				v.Must(v.peer.Pieces(out, n, 0))
				v.readBack(77, 1<<40, answer)
				v.Must(v.peer.Conn.CloseWrite())
				if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
					v.Errorf("the end is %v, %v; want a FIN", end, err)
				}
				v.over()
				v.Check(v.qp.Err())
				v.completed(nil, []rdma.Status{rdma.Success, rdma.Success})
				v.intact()
				v.bury()
			})
		}
	})
}

// The longest possible FPDU spans many segments, and so do several of them.
func TestLongFPDUs(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		const most = 65535 - wire.TaggedLen
		data := make([]byte, most)
		stag := uint32(v.open.RKey())
		for i := range 5 {
			rand.NewChaCha8([32]byte{byte(i)}).Read(data)
			v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Write(stag, uint64(i), data))))
		}
		for i := range 5 {
			rand.NewChaCha8([32]byte{byte(i)}).Read(data)
			v.expect(v.open, i, data)
		}
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(1, nil))))
		v.received(0, "")
		v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Send(2, nil))))
		v.received(1, "")
		v.Must(v.peer.Conn.CloseWrite())
		if end, err := v.peer.End(); err != nil || end != rawpeer.FIN {
			v.Errorf("the end is %v, %v; want a FIN", end, err)
		}
		v.over()
		v.Check(v.qp.Err())
		v.completed(nil, nil)
		v.intact()
		v.bury()
	})
}

// More Reads than IRD end the connection. Those before them may be answered in part (RFC 5040 §5.2, RFC 5041 §7).
func TestReadsBeyondIRD(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		var all []byte
		request := func(msn uint32) []byte {
			return rawpeer.ReadRequest(msn, rawpeer.Read{Size: regionLen, SourceSTag: v.open.RKey()})
		}
		const reads = 64 // of 64 KiB each: more than any send buffer takes
		for i := range uint32(reads) {
			all = append(all, rawpeer.FPDU(request(i+1))...)
		}
		v.Must(v.peer.Octets(all))
		t := v.untilTerminate()
		if t.String() != "1/2/02" || len(t.Header) != wire.UntaggedLen || t.Request != nil {
			v.Errorf("the Terminate is %v, %+v; want 1/2/02", t, t)
		}
		v.peer.Conn.Close()
		v.over()
		v.blamed(false, "1/2/02")
		v.completed(nil, flushed)
		v.intact()
		v.bury()
	})
}

// untilTerminate skips Read Responses.
func (v *victim) untilTerminate() rawpeer.Terminate {
	v.Helper()
	for {
		ulpdu, err := v.peer.FPDU()
		v.Must(err)
		if rawpeer.IsTerminate(ulpdu) {
			t, err := rawpeer.ParseTerminate(ulpdu)
			v.Must(err)
			return t
		}
		if h, _, ok := wire.ParseTagged(ulpdu); !ok || h.Opcode() != wire.OpReadResponse {
			v.Fatalf("neither a Response nor a Terminate: %x", ulpdu[:18])
		}
	}
}

// IRD Reads at a time are served, again and again.
func TestReadsUpToIRD(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		v := newVictim(r)
		v.accept(usual, usualParams)
		msn := uint32(0)
		for range 20 {
			var all []byte
			for i := range uint32(4) {
				msn++
				all = append(all, rawpeer.FPDU(rawpeer.ReadRequest(msn, rawpeer.Read{
					SinkSTag: tpt.STag(i), Size: 5000, SourceSTag: v.open.RKey(), SourceTO: uint64(i),
				}))...)
			}
			v.Must(v.peer.Octets(all))
			for i := range 4 {
				v.readBack(uint32(i), 0, v.images[v.open][i:i+5000])
			}
		}
		v.Must(v.peer.Kill())
		v.over()
		v.lost(stream.ErrReset)
		v.completed(nil, flushed)
		v.intact()
		v.bury()
	})
}
