package mpa_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// FuzzDeframe: whatever arrives, nothing panics, and what comes out does not
// depend on how it is cut.
func FuzzDeframe(f *testing.F) {
	f.Fuzz(func(t *testing.T, crc, markers bool, seed uint64, b []byte) {
		want, fault, partial := deframe(crc, markers, b)
		r := rand.New(rand.NewPCG(seed, 0))
		for _, pieces := range [][][]byte{octetwise(b), random(r, b, 1+r.IntN(1000))} {
			got, fault2, partial2 := deframe(crc, markers, pieces...)
			if fault2 != fault || fault == mpa.OK && partial2 != partial || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("cut: %v, %v, % x; whole: %v, %v, % x", fault2, partial2, got, fault, partial, want)
			}
		}
	})
}

// FuzzCuts: what was framed comes out, wherever the stream is cut.
func FuzzCuts(f *testing.F) {
	f.Fuzz(func(t *testing.T, crc, markers bool, seed uint64, most, piece uint16) {
		r := rand.New(rand.NewPCG(seed, 1))
		longest := 14 + int(most)%(wire.MaxULPDU-13)
		s := makeStretch(r, crc, markers, 1+r.IntN(1+40000/longest), longest)
		s.check(t, "cut at random", random(r, s.bytes, 1+int(piece)))
	})
}

// FuzzReadRequest: a Request is understood or refused with a reason, and what
// is understood can be accepted.
func FuzzReadRequest(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := mpa.ReadRequest(b)
		if err != nil {
			var bad *mpa.FrameError
			if !errors.As(err, &bad) {
				t.Fatalf("% x: %T", b, err)
			}
			return
		}
		reply, a, err := r.Accept(mpa.Offer{IRD: 8, ORD: 8})
		if err != nil || a.ORD > 8 || a.IRD != 8 {
			t.Fatalf("% x: %v, %+v", b, err, a)
		}
		if n, err := mpa.FrameLength(reply); err != nil || n != len(reply) {
			t.Fatalf("% x is answered % x: %v", b, reply, err)
		}
	})
}

// FuzzReadReply: a Reply is understood or refused with a reason, and never
// raises what was offered.
func FuzzReadReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, rev uint8, peer bool, b []byte) {
		o := mpa.Offer{Revision: rev % 3, PeerToPeer: peer, IRD: 8, ORD: 8}
		a, err := o.ReadReply(b)
		var bad *mpa.FrameError
		var no *mpa.Rejected
		var other *mpa.Mismatch
		switch {
		case err != nil && !errors.As(err, &bad) && !errors.As(err, &no) && !errors.As(err, &other):
			t.Fatalf("% x: %T", b, err)
		case err == nil && (a.ORD > 8 || a.IRD != 8 || (a.RTR != mpa.NoRTR) != (peer && a.Revision == 2) && o.Revision != 1):
			t.Fatalf("% x: %+v", b, a)
		}
	})
}
