package octets

import (
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// wire is a Stream with little room; turn moves its output to its input.
type wire struct {
	in, out     []byte
	room, max   int
	closed, eof bool
	aborted     bool
}

func (w *wire) Views(dst [][]byte) int {
	n := 0
	for b := w.in; len(b) > 0 && n < len(dst); n++ {
		k := min(len(b), 300)
		dst[n], b = b[:k], b[k:]
	}
	return n
}
func (w *wire) Consume(n int) { w.in = w.in[n:] }
func (w *wire) EOF() bool     { return w.eof && len(w.in) == 0 }
func (w *wire) Emit(n int) []byte {
	if w.closed || len(w.out)+n > w.room {
		return nil
	}
	w.out = w.out[:len(w.out)+n]
	return w.out[len(w.out)-n:]
}
func (w *wire) MaxEmit() int { return w.max }
func (w *wire) Room() int    { return 0 }
func (w *wire) Unacked() int { return 0 }
func (w *wire) CloseWrite()  { w.closed = true }
func (w *wire) Abort()       { w.aborted = true }

func (w *wire) turn() {
	w.in, w.out = w.out, w.in[:0:cap(w.in)]
	if cap(w.out) < w.room {
		w.out = make([]byte, 0, w.room)
	}
	w.eof = w.closed
}

// loop runs a ULP against itself until it closes and has seen the end.
func loop(u stream.ULP, w *wire) {
	w.turn()
	for range 10000 {
		u.Transmit(1, w)
		w.turn()
		u.Receive(1, w)
		if w.aborted || w.EOF() {
			break
		}
	}
	if w.aborted {
		u.Fault(1, stream.ErrAborted)
		return
	}
	u.Fault(1, nil)
}

func TestPatternIsItsOwnParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Pattern(rapid.Uint64().Draw(t, "seed"))
		pos := rapid.Uint64Range(0, 1<<40).Draw(t, "position")
		n := rapid.IntRange(1, 200).Draw(t, "length")
		b := make([]byte, n)
		p.Fill(b, pos)
		for i := range b {
			if b[i] != p.octet(pos+uint64(i)) {
				t.Fatalf("octet %d of %d", i, n)
			}
		}
		if i := p.Differs(b, pos); i != -1 {
			t.Fatalf("differs from itself at %d", i)
		}
		bad := rapid.IntRange(0, n-1).Draw(t, "bad")
		b[bad] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if i := p.Differs(b, pos); i != bad {
			t.Fatalf("first difference at %d, want %d", i, bad)
		}
	})
}

func TestSumIsTwoCRCs(t *testing.T) {
	var s Sum
	s.Add([]byte("1234"))
	s.Add([]byte("56789"))
	// The check values of both polynomials over "123456789".
	if got := s.Value(); got != 0xe3069283cbf43926 {
		t.Errorf("%#x, IEEE alone %#x", got, crc32.ChecksumIEEE([]byte("123456789")))
	}
}

func TestTransfer(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want string // of the error, "" for none
	}{
		{Plan{}, ""},
		{Plan{Send: 10000, Seed: 5, Expect: 10000, PeerSeed: 5}, ""},
		{Plan{Send: 10000, Seed: 5, Expect: 10000, PeerSeed: 5, Chunk: 1}, ""},
		{Plan{Send: 10000, Seed: 5, Expect: 9999, PeerSeed: 5}, "the peer sent more than 9999 octets"},
		{Plan{Send: 9999, Seed: 5, Expect: 10000, PeerSeed: 5}, "the peer closed after 9999 of 10000 octets"},
		{Plan{Send: 100, Seed: 5, Expect: 100, PeerSeed: 6}, "received octet 0 is wrong"},
	} {
		t.Run(fmt.Sprint(c.plan), func(t *testing.T) {
			u := NewTransfer(c.plan)
			if u.Err() == nil {
				t.Error("no error before the end")
			}
			loop(u, &wire{room: 50, max: 13})
			<-u.Done()
			if err := u.Err(); fmt.Sprint(err) != c.want && !(err == nil && c.want == "") {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			if sent, received := u.Sums(); c.want == "" && sent != received {
				t.Errorf("sums %x and %x", sent, received)
			}
		})
	}
}

func TestTransferTellsWhatEndedIt(t *testing.T) {
	u := NewSource(100, 1)
	u.Fault(1, stream.ErrReset)
	if !errors.Is(u.Err(), stream.ErrReset) {
		t.Error(u.Err())
	}
	u = NewSource(100, 1)
	u.Fault(1, nil)
	if u.Err() == nil {
		t.Error("no error although nothing was sent")
	}
}

func TestEcho(t *testing.T) {
	e := NewEcho()
	w := &wire{room: 5, max: 3, in: []byte("hello, world"), out: make([]byte, 0, 5), eof: true}
	var got []byte
	for range 10 {
		e.Receive(1, w)
		got, w.out = append(got, w.out...), w.out[:0]
	}
	if string(got) != "hello, world" || e.Echoed() != 12 || !w.closed {
		t.Errorf("%q, %d echoed, closed %v", got, e.Echoed(), w.closed)
	}
	e.Fault(1, nil)
	<-e.Done()
	if e.Err() != nil {
		t.Error(e.Err())
	}
}

func TestNothingAllocates(t *testing.T) {
	u := NewTransfer(Plan{Send: 1 << 40, Seed: 1, Expect: 1 << 40, PeerSeed: 1})
	a, b := make([]byte, 0, 1400), make([]byte, 0, 1400)
	w := &wire{room: 1400, max: 1400, in: a, out: b}
	turns := func() {
		u.Transmit(clock.Instant(1), w)
		w.in, w.out = w.out, b
		u.Receive(clock.Instant(1), w)
		a, b = b, a
		w.out = b[:0]
	}
	if n := testing.AllocsPerRun(100, turns); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if u.Received() == 0 {
		t.Error("nothing moved")
	}
}

func BenchmarkTransfer(b *testing.B) {
	u := NewTransfer(Plan{Send: 1 << 60, Seed: 1, Expect: 1 << 60, PeerSeed: 1})
	const room = 64 << 10
	buf := make([]byte, 0, room)
	w := &wire{room: room, max: 1 << 10, out: buf}
	b.SetBytes(room)
	b.ReportAllocs()
	for b.Loop() {
		u.Transmit(1, w)
		w.in, w.out = w.out, buf
		u.Receive(1, w)
	}
}
