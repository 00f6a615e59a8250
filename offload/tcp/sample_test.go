package tcp

import "testing"

// The ACK of a segment is lost, and its retransmission is answered a timeout later. The timestamp in that answer may
// be that of the original, as RFC 7323 says, but the D-SACK shows that the answer is for the retransmission: the
// round trip is still 10 ms.
func TestAnswerToADuplicateIsNoLongRoundTrip(t *testing.T) { // RFC 2883, RFC 7323 §4.1
	each(t, func(s *script) {
		s.open(withSACK, withTS)
		s.write(900)
		s.sends(0, "PA 1:901 ack 1 ts 1000/0")
		s.sends(5000*ms, "PA 1:901 ack 1") // several times by then
		at := s.now.Sub(scriptStart)
		s.gets(at+10*ms, "A 1:1 ack 901 sack 1-901 ts 500/1000")
		if i := s.c.Info(); i.SRTT > 20*ms || i.RTO > 300*ms || i.Backoff != 0 {
			t.Errorf("SRTT %v, RTO %v, backoff %d; the round trip was 10 ms", i.SRTT, i.RTO, i.Backoff)
		}
	})
}

// The last segment comes again because our ACK was lost: its timestamp is echoed. An older or an invalid timestamp is
// not.
func TestDuplicateOfTheLastIsEchoed(t *testing.T) { // as Linux
	each(t, func(s *script) {
		s.open(withSACK, withTS)
		s.gets(0, "PA 1:101 ack 1 ts 500/1000")
		s.gets(0, "PA 101:201 ack 1 ts 501/1000")
		s.sends(40*ms, "A 1:1 ack 201 ts 1040/500")
		s.drops(300*ms, "PA 101:201 ack 1 ts 800/1000", DropDuplicate)
		s.sends(300*ms, "A 1:1 ack 201 sack 101-201 ts 1300/800")
		s.drops(400*ms, "PA 1:101 ack 1 ts 900/1000", DropDuplicate) // not the last
		s.sends(400*ms, "A 1:1 ack 201 sack 1-101 ts 1400/800")
		s.drops(500*ms, "PA -9999:-9000 ack 1 ts 1000/1000", DropDuplicate)
		s.sends(500*ms, "A 1:1 ack 201 sack -9999--9000 ts 1500/800")
	})
}
