package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
)

func TestPhases(t *testing.T) { // RFC 9293 §3.3.2, the whole table
	const no = phases
	want := [phases][events]Phase{
		//            close    finAcked    peerFin     expire  reset
		Established: {FinWait1, no, CloseWait, no, Closed},
		FinWait1:    {no, FinWait2, Closing, no, Closed},
		FinWait2:    {no, no, InTimeWait, no, Closed},
		Closing:     {no, InTimeWait, no, no, Closed},
		InTimeWait:  {no, no, no, Closed, Closed},
		CloseWait:   {LastAck, no, no, no, Closed},
		LastAck:     {no, Closed, no, no, Closed},
		Closed:      {no, no, no, no, no},
	}
	for from := range phases {
		for ev := range events {
			next, ok := from.next(ev)
			w := want[from][ev]
			if ok != (w != no) || (ok && next != w) || (!ok && next != from) {
				t.Errorf("%v, event %d: %v %v, want %v", from, ev, next, ok, w)
			}
		}
	}
}

func TestActiveClose(t *testing.T) { // RFC 9293 §3.6, figure 12
	each(t, func(s *script) {
		s.open()
		s.write(10)
		s.c.CloseWrite()
		s.is(FinWait1)
		if s.c.Emit(1) != nil {
			t.Error("Emit after CloseWrite")
		}
		s.sends(0, "FPA 1:11 ack 1")
		s.gets(1*ms, "A 1:1 ack 12")
		s.is(FinWait2)
		s.gets(2*ms, "PA 1:101 ack 12") // half closed: the peer may still send
		s.gets(2*ms, "FA 101:101 ack 12")
		s.is(InTimeWait)
		s.sends(2*ms, "A 12:12 ack 102")
		if done, _ := s.c.Done(); done {
			t.Error("done with octets that nobody has read")
		}
		s.read(100)
		if !s.c.EOF() {
			t.Error("no end of stream")
		}
		s.ended(nil)
		if _, ok := s.c.TimeWait(); !ok {
			t.Error("no record")
		}
		s.deadline(60*time.Second + 2*ms)
		s.sends(60*time.Second + 2*ms)
		s.is(Closed)
		s.ended(nil)
	})
}

func TestPassiveClose(t *testing.T) { // RFC 9293 §3.6, case 2
	each(t, func(s *script) {
		s.open()
		s.gets(0, "FPA 1:11 ack 1")
		s.is(CloseWait)
		if s.c.EOF() {
			t.Error("end of stream before its octets")
		}
		s.read(10)
		if !s.c.EOF() {
			t.Error("no end of stream")
		}
		s.write(500) // our direction stays open
		s.sends(0, "PA 1:501 ack 12")
		s.drops(1*ms, "FPA 1:11 ack 501", DropDuplicate)
		s.sends(1*ms, "A 501:501 ack 12")
		s.gets(2*ms, "A 12:12 ack 501")
		s.c.CloseWrite()
		s.is(LastAck)
		s.sends(2*ms, "FA 501:501 ack 12")
		s.sends(202*ms, "FA 501:501 ack 12")
		s.gets(203*ms, "A 12:12 ack 502")
		s.ended(nil)
		if _, ok := s.c.TimeWait(); ok {
			t.Error("TIME-WAIT after a passive close")
		}
	})
}

func TestSimultaneousClose(t *testing.T) { // RFC 9293 §3.6, figure 13
	each(t, func(s *script) {
		s.open()
		s.c.CloseWrite()
		s.sends(0, "FA 1:1 ack 1")
		s.gets(1*ms, "FA 1:1 ack 1")
		s.is(Closing)
		s.sends(1*ms, "A 2:2 ack 2")
		s.gets(2*ms, "A 2:2 ack 2")
		s.is(InTimeWait)
		s.ended(nil)
	})
}

func TestFINWithACKOfFIN(t *testing.T) { // RFC 9293 §3.10.7.4: ACK first, then FIN
	each(t, func(s *script) {
		s.open()
		s.c.CloseWrite()
		s.sends(0, "FA 1:1 ack 1")
		s.gets(1*ms, "FA 1:1 ack 2")
		s.is(InTimeWait)
		s.sends(1*ms, "A 2:2 ack 2")
	})
}

func TestFINOutOfOrder(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.gets(0, "FPA 1001:1501 ack 1")
		s.is(Established)
		s.sends(0, "A 1:1 ack 1 sack 1001-1501")
		s.gets(1*ms, "A 1:1001 ack 1")
		s.is(CloseWait)
		s.sends(1*ms, "A 1:1 ack 1502")
		s.read(1500)
	})
}

func TestTextAfterFIN(t *testing.T) { // RFC 9293 §3.10.7.4, seventh: should not occur
	each(t, func(s *script) {
		s.open()
		s.gets(0, "FA 1:1 ack 1")
		s.sends(0, "A 1:1 ack 2")
		s.drops(1*ms, "A 2:102 ack 1", DropAfterFIN)
		s.is(CloseWait)
		if s.c.in.unread != 0 {
			t.Error("it was taken")
		}
	})
	each(t, func(s *script) { // a FIN before octets that came earlier
		s.open()
		s.gets(0, "A 101:201 ack 1")
		s.gets(0, "FA 51:51 ack 1")
		s.gets(0, "A 1:51 ack 1")
		s.is(CloseWait)
		s.read(50)
	})
	each(t, func(s *script) { // a FIN amid held octets: the stream ends at the FIN
		s.open()
		s.gets(0, "A 101:201 ack 1")
		s.gets(0, "FA 151:151 ack 1")
		s.gets(0, "A 1:101 ack 1")
		s.gets(0, "A 101:201 ack 1")
		s.is(CloseWait)
		s.read(150)
	})
}

func TestAbort(t *testing.T) { // RFC 9293 §3.10.5
	each(t, func(s *script) {
		s.open()
		s.write(3000)
		s.gets(0, "A 1:101 ack 1")
		s.gets(0, "A 201:301 ack 1")
		s.sends(0, "A 1:1001 ack 101", "A 1001:2001 ack 101", "PA 2001:3001 ack 101", "A 3001:3001 ack 101")
		s.c.Abort()
		s.m.empty(t)
		if done, _ := s.c.Done(); done {
			t.Error("done before the RST has left")
		}
		s.sends(0, "RA 3001:3001 ack 101") // exactly SND.NXT
		s.ended(stream.ErrAborted)
		// The peer may have another RCV.NXT, and challenges the RST (RFC 5961 §3.2).
		s.drops(1*ms, "A 101:101 ack 1001", DropClosed)
		s.sends(1*ms, "RA 1001:1001 ack 101")
		s.drops(2*ms, "RA 101:101 ack 1001", DropClosed)
		s.sends(2 * ms)
	})
}

func TestResetWhileClosing(t *testing.T) { // RFC 9293 §3.10.7.4, second
	each(t, func(s *script) {
		s.open()
		s.gets(0, "FA 1:1 ack 1")
		s.c.CloseWrite()
		s.sends(0, "FA 1:1 ack 2")
		s.gets(1*ms, "R 2:2 ack 0")
		s.ended(nil) // everything had been acknowledged
	})
	each(t, func(s *script) {
		s.open()
		s.gets(0, "FA 1:1 ack 1")
		s.write(10)
		s.c.CloseWrite()
		s.sends(0, "FPA 1:11 ack 2")
		s.gets(1*ms, "R 2:2 ack 0")
		s.ended(stream.ErrReset) // octets were lost
	})
}

// waiting returns the record of a connection that has just entered TIME-WAIT.
func waiting(s *script, change ...func(*State, *Config)) TimeWait {
	s.open(change...)
	s.c.CloseWrite()
	s.c.Transmit(s.now, s)
	s.gets(0, "FA 1:1 ack 2 ts 50/0")
	s.c.Transmit(s.now, s)
	w, ok := s.c.TimeWait()
	if !ok {
		s.Fatal("not in TIME-WAIT")
	}
	return w
}

func TestTimeWaitRecord(t *testing.T) { // RFC 9293 §3.10.7.4, RFC 1337, RFC 6191
	each(t, func(s *script) {
		w := waiting(s)
		ask := func(at time.Duration, text string, want ...string) {
			t.Helper()
			s.at(at)
			seg, n := s.parse(text)
			seg.Payload = make([]byte, n)
			s.sent = s.sent[:0]
			w.Receive(s.now, &seg, s)
			if len(s.sent) != len(want) || (len(want) > 0 && trimTo(s.sent[0], want[0]) != want[0]) {
				t.Errorf("%s: answered %q, want %q", text, s.sent, want)
			}
		}
		if w.Deadline() != scriptStart.Add(60*time.Second) {
			t.Errorf("until %v", w.Deadline())
		}
		ask(1*time.Second, "R 2:2 ack 0") // RFC 1337: no assassination
		ask(2*time.Second, "A 2:2 ack 2")
		ask(10*time.Second, "FA 1:1 ack 2", "A 2:2 ack 2")
		if w.Deadline() != scriptStart.Add(70*time.Second) {
			t.Error("a repeated FIN does not restart the wait")
		}
		ask(11*time.Second, "A 1:1 ack 2", "A 2:2 ack 2")    // old
		ask(11*time.Second+ms, "A 1:1 ack 2")                // limited
		ask(20*time.Second, "S 1:1 ack 0", "A 2:2 ack 2")    // an old SYN
		ask(21*time.Second, "SA 90:90 ack 2", "A 2:2 ack 2") // does not begin a new connection
		if !s.now.Before(w.Deadline()) {
			t.Error("the record is over too early")
		}
		ask(22*time.Second, "S 3:3 ack 0")
		if w.Deadline() != s.now {
			t.Error("a new connection's SYN does not end the record")
		}
	})
	each(t, func(s *script) { // RFC 6191: timestamps decide if both have them
		w := waiting(s, withTS)
		seg, _ := s.parse("S 3:3 ack 0 ts 49/0")
		w.Receive(s.now, &seg, s)
		if w.Deadline() == s.now {
			t.Error("an older timestamp ended the record")
		}
		seg, _ = s.parse("S -100:-100 ack 0 ts 51/0")
		w.Receive(s.now, &seg, s)
		if w.Deadline() != s.now {
			t.Error("a newer timestamp did not end the record")
		}
	})
}

func TestTimeWaitInConn(t *testing.T) { // a Conn in TIME-WAIT behaves as the record does
	each(t, func(s *script) {
		waiting(s)
		s.drops(10*time.Second, "FA 1:1 ack 2", DropTimeWait)
		s.sends(10*time.Second, "A 2:2 ack 2")
		s.deadline(70 * time.Second)
		s.drops(11*time.Second, "R 2:2 ack 0", DropTimeWait)
		s.is(InTimeWait)
	})
}
