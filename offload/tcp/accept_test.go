package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
)

func TestResetRows(t *testing.T) { // RFC 5961 §3.2
	each(t, func(s *script) {
		s.open()
		s.drops(0, "R 0:0 ack 0", DropRSTWindow)
		s.drops(0, "R 20001:20001 ack 0", DropRSTWindow)
		s.sends(0)
		s.drops(1*ms, "R 2:2 ack 0", DropRSTChallenged)
		s.sends(1*ms, "A 1:1 ack 1")
		s.drops(2*ms, "R 20000:20000 ack 0", DropRSTChallenged)
		s.sends(2*ms, "A 1:1 ack 1")
		s.is(Established)
		s.drops(3*ms, "R 1:1 ack 0", DropNone)
		s.sends(3 * ms)
		s.ended(stream.ErrReset)
		s.drops(4*ms, "A 1:101 ack 1", DropClosed)
		s.sends(4 * ms)
	})
}

func TestResetWithClosedWindow(t *testing.T) { // RFC 9293 §3.10.7.4
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvWnd, cfg.RcvBuf = 0, 100 })
		s.drops(0, "R 2:2 ack 0", DropRSTWindow)
		s.drops(0, "R 1:1 ack 0", DropNone)
		s.ended(stream.ErrReset)
	})
}

func TestSYNRow(t *testing.T) { // RFC 5961 §4.2: any SEQ
	each(t, func(s *script) {
		s.open()
		for i, text := range []string{"S 1:1 ack 0", "SA 5000:5000 ack 1", "S 900000:900000 ack 0"} {
			at := time.Duration(i) * ms
			s.drops(at, text, DropSYN)
			s.sends(at, "A 1:1 ack 1")
		}
		s.is(Established)
	})
}

func TestACKRows(t *testing.T) { // RFC 5961 §5.2
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.MaxWnd, st.SndWnd = 5000, 5000 })
		s.write(2000)
		s.c.Transmit(s.now, s)
		s.gets(0, "A 1:1 ack 2001 win 5000")
		s.drops(0, "A 1:101 ack 2002", DropBadACK) // acknowledges octets that were never sent
		s.sends(0, "A 2001:2001 ack 1")
		s.drops(1*ms, "A 1:101 ack -3000", DropBadACK) // below SND.UNA - MAX.SND.WND
		s.sends(1*ms, "A 2001:2001 ack 1")
		s.drops(2*ms, "A 1:101 ack -2999", DropNone) // the edge: text is accepted
		s.drops(2*ms, "A 101:201 ack 2001", DropNone)
		s.drops(2*ms, "P 201:301 ack 0", DropNoACK)
		s.read(200)
	})
}

func TestChallengeLimit(t *testing.T) { // RFC 5961 §7
	counts := map[int]bool{}
	for seed := range uint64(40) {
		l := newLimiter(scriptStart, seed)
		n := 0
		for range 100 {
			n += b2i(l.challenge(scriptStart.Add(time.Second)))
		}
		if n < 5 || n > 10 {
			t.Fatalf("%d challenges in a period", n)
		}
		counts[n] = true
		if !l.challenge(scriptStart.Add(6 * time.Second)) {
			t.Fatal("no challenge in the next period")
		}
	}
	if len(counts) < 4 {
		t.Errorf("the limit can be foreseen: only %v", counts)
	}
}

func TestUnacceptableIsAnswered(t *testing.T) { // RFC 9293 §3.10.7.4, first
	each(t, func(s *script) {
		s.open()
		s.drops(0, "A 25000:25100 ack 1", DropWindow)
		s.sends(0, "A 1:1 ack 1")
		s.drops(1*ms, "A -500:-400 ack 1", DropDuplicate)
		s.sends(1*ms, "A 1:1 ack 1")
		// Without text: rarely, because two confused ends would otherwise answer each other for ever.
		s.drops(2*ms, "A 25000:25000 ack 1", DropWindow)
		s.sends(2*ms, "A 1:1 ack 1")
		s.drops(3*ms, "A 25000:25000 ack 1", DropWindow)
		s.sends(3 * ms)
		s.drops(503*ms, "A -20:-20 ack 1", DropWindow)
		s.sends(503*ms, "A 1:1 ack 1")
		// Probes (RFC 9293 §3.8.4): always.
		for i := range 5 {
			at := 504*ms + time.Duration(i)*ms
			s.drops(at, "A 0:0 ack 1", DropWindow)
			s.sends(at, "A 1:1 ack 1")
		}
		s.drops(510*ms, "A 0:1 ack 1", DropDuplicate) // with an octet of garbage
		s.sends(510*ms, "A 1:1 ack 1")
	})
}

func TestACKAtRightEdge(t *testing.T) { // doc.go, departures
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvWnd, cfg.RcvBuf = 2000, 2000 })
		s.write(10)
		s.c.Transmit(s.now, s)
		s.gets(0, "A 1001:2001 ack 1") // after a hole; the peer has filled our window
		s.gets(0, "A 2001:2001 ack 11")
		if s.c.Unacked() != 0 {
			t.Error("the ACK field was not looked at")
		}
	})
}
