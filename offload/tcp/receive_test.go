package tcp

import (
	"testing"
	"time"
)

func TestDelayedACK(t *testing.T) { // RFC 9293 §3.8.6.3, RFC 5681 §4.2
	each(t, func(s *script) {
		s.open()
		s.gets(0, "PA 1:1001 ack 1")
		s.gets(0, "PA 1001:2001 ack 1")
		s.sends(0, "A 1:1 ack 2001") // the second full segment; one ACK for both
		s.gets(10*ms, "PA 2001:3001 ack 1")
		s.sends(10 * ms)
		s.deadline(50 * ms)
		s.sends(49 * ms)
		s.sends(50*ms, "A 1:1 ack 3001")
		s.gets(60*ms, "PA 3001:3101 ack 1")
		s.write(10)
		s.sends(60*ms, "PA 1:11 ack 3101") // data takes it along
		s.read(3100)
		s.sends(61*ms, "A 11:11 ack 3101 win 20000")
		s.sends(150 * ms)
		if st := s.c.Stats(); st.OctetsIn != 3100 || st.SegsIn != 4 || st.OctetsOut != 10 || st.SegsOut != 4 || st.AcksOut != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// Pushed octets are acknowledged at once if no data of ours will probably carry the ACK. Otherwise the ACK waits for
// that data.
func TestPushedIsAcknowledged(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.gets(39*ms, "PA 1:101 ack 1")
		s.sends(39 * ms) // a connection that has just begun may answer
		s.sends(79*ms, "A 1:1 ack 101")
		s.gets(80*ms, "A 101:201 ack 1")
		s.sends(80 * ms) // more is to come
		s.gets(81*ms, "PA 201:301 ack 1")
		s.sends(81*ms, "A 1:1 ack 301")
		s.write(10)
		s.sends(90*ms, "PA 1:11 ack 301")
		s.gets(129*ms, "PA 301:401 ack 11")
		s.sends(129 * ms)
		s.write(10) // the answer
		s.sends(130*ms, "PA 11:21 ack 401")
		s.gets(170*ms, "PA 401:501 ack 21")
		s.sends(170*ms, "A 21:21 ack 501")
		if st := s.c.Stats(); st.AcksOut != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestOneOctetSegments(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		for i := 1; i <= 1200; i++ {
			s.gets(0, "A "+itoa(i)+":"+itoa(i+1)+" ack 1")
		}
		if n := s.m.rx.out(); n != 1 {
			t.Errorf("%d frames are held for 1200 octets", n)
		}
		s.read(1200)
		s.sends(0, "A 1:1 ack 1201")
	})
}

func TestOutOfOrder(t *testing.T) { // RFC 5681 §4.2: at once, behind a hole and when it fills
	each(t, func(s *script) {
		s.open()
		s.gets(0, "A 1001:2001 ack 1")
		s.gets(0, "A 2001:3001 ack 1")
		s.gets(0, "A 3001:4001 ack 1")
		s.sends(0, "A 1:1 ack 1", "A 1:1 ack 1", "A 1:1 ack 1") // a duplicate for each: no SACK
		s.gets(1*ms, "A 1:501 ack 1")                           // part of the hole
		s.sends(1*ms, "A 1:1 ack 501")
		s.gets(2*ms, "A 4001:5001 ack 1")
		s.gets(2*ms, "A 501:1001 ack 1")
		s.sends(2*ms, "A 1:1 ack 5001")
		s.read(5000)
	})
}

func TestSACKGeneration(t *testing.T) { // RFC 2018 §4
	each(t, func(s *script) {
		s.open(withSACK)
		s.gets(0, "A 1001:2001 ack 1")
		s.sends(0, "A 1:1 ack 1 sack 1001-2001")
		s.gets(1*ms, "A 3001:4001 ack 1")
		s.sends(1*ms, "A 1:1 ack 1 sack 3001-4001,1001-2001")
		s.gets(2*ms, "A 5001:6001 ack 1")
		s.gets(2*ms, "A 7001:8001 ack 1")
		s.sends(2*ms, "A 1:1 ack 1 sack 7001-8001,5001-6001,3001-4001,1001-2001")
		s.gets(3*ms, "A 9001:10001 ack 1")
		s.sends(3*ms, "A 1:1 ack 1 sack 9001-10001,7001-8001,5001-6001,3001-4001") // four at most
		s.gets(4*ms, "A 4001:5001 ack 1")                                          // joins two
		s.sends(4*ms, "A 1:1 ack 1 sack 3001-6001,9001-10001,7001-8001")
		s.write(10) // data has no room for blocks: they are sent in an ACK of their own
		s.gets(5*ms, "A 1:1001 ack 1")
		s.sends(5*ms, "PA 1:11 ack 2001", "A 11:11 ack 2001 sack 3001-6001,9001-10001,7001-8001")
		s.gets(6*ms, "A 2001:3001 ack 11")
		s.gets(6*ms, "A 6001:7001 ack 11")
		s.gets(6*ms, "A 8001:9001 ack 11")
		s.sends(6*ms, "A 11:11 ack 10001")
		s.read(10000)
	})
}

func TestSACKThreeBlocksWithTimestamps(t *testing.T) { // RFC 2018 §3
	each(t, func(s *script) {
		s.open(withSACK, withTS)
		for i := 1; i < 9; i += 2 {
			s.gets(0, "A "+itoa(i*1000+1)+":"+itoa(i*1000+101)+" ack 1 ts 5/0")
		}
		s.sends(0, "A 1:1 ack 1 sack 7001-7101,5001-5101,3001-3101")
	})
}

func TestDSACK(t *testing.T) { // RFC 2883 §4
	each(t, func(s *script) {
		s.open(withSACK)
		s.gets(0, "A 1:1001 ack 1")
		s.gets(0, "A 1001:2001 ack 1")
		s.sends(0, "A 1:1 ack 2001")
		s.drops(1*ms, "A 1:1001 ack 1", DropDuplicate) // below the cumulative ACK
		s.sends(1*ms, "A 1:1 ack 2001 sack 1-1001")
		s.gets(2*ms, "A 1501:2501 ack 1") // in part
		s.sends(2*ms, "A 1:1 ack 2501 sack 1501-2001")
		s.gets(3*ms, "A 3001:4001 ack 1")
		s.sends(3*ms, "A 1:1 ack 2501 sack 3001-4001") // reported once only
		s.drops(4*ms, "A 3001:4001 ack 1", DropDuplicate)
		s.sends(4*ms, "A 1:1 ack 2501 sack 3001-4001,3001-4001") // and the block that holds it
	})
}

func TestOverlaps(t *testing.T) { // RFC 9293 §3.10.7.4: trimmed to what is new
	each(t, func(s *script) {
		s.open(withSACK)
		s.gets(0, "A 101:201 ack 1")
		s.gets(0, "A 301:701 ack 1")
		s.gets(0, "A 1301:1401 ack 1")
		s.gets(0, "A 401:501 ack 1")  // within
		s.gets(0, "A 151:351 ack 1")  // bridges two
		s.gets(0, "A 601:1501 ack 1") // behind one, over another
		s.gets(0, "A 1:121 ack 1")    // over the first's beginning
		s.sends(0, "A 1:1 ack 1501 sack 1301-1401")
		s.read(1500)
		if s.m.rx.out() != 0 {
			t.Errorf("%d frames are still held", s.m.rx.out())
		}
	})
}

func TestReorderShare(t *testing.T) { // octets beyond the share are dropped unacknowledged
	each(t, func(s *script) {
		s.open(withSACK)
		s.m.share = 3
		s.gets(0, "A 1001:2001 ack 1")
		s.gets(0, "A 3001:4001 ack 1")
		s.gets(0, "A 5001:6001 ack 1")
		s.drops(0, "A 7001:8001 ack 1", DropReorderShare)
		s.sends(0, "A 1:1 ack 1 sack 5001-6001,3001-4001,1001-2001")
		// In-order octets have priority: the run with the highest sequence numbers is dropped (RFC 2018 §8).
		s.drops(1*ms, "A 1:1001 ack 1", DropNone)
		s.sends(1*ms, "A 1:1 ack 2001 sack 3001-4001")
		s.drops(2*ms, "A 2001:3001 ack 1", DropNone)
		s.sends(42*ms, "A 1:1 ack 3001") // in order, but the next run had to be dropped
	})
}

func TestShareUsedUp(t *testing.T) { // all frames of the share are held
	each(t, func(s *script) {
		s.open()
		s.m.share = 2
		s.gets(0, "A 1:1401 ack 1")
		s.gets(0, "A 1401:1801 ack 1")
		// Copied after the octets before them. The frames fill up to the last octet.
		s.drops(0, "A 1801:2601 ack 1", DropNone)
		s.drops(0, "A 2601:3801 ack 1", DropNone)
		s.drops(0, "A 3801:4801 ack 1", DropNoFrames)
		if s.m.rx.out() != 2 {
			t.Errorf("%d frames are held", s.m.rx.out())
		}
		n := int(s.c.rcvNxt - s.irs - 1)
		if n != 2*(2048-66) {
			t.Errorf("%d octets in two frames", n)
		}
		s.sends(0, "A 1:1 ack "+itoa(n+1)) // only what is held
		s.read(n)
		s.gets(1*ms, "A "+itoa(n+1)+":4801 ack 1")
		s.read(4800 - n)
	})
}

func TestWindowUpdate(t *testing.T) { // RFC 9293 §3.8.6.2.2: receiver silly-window avoidance
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { cfg.RcvBuf, st.RcvWnd = 4000, 4000 })
		for i := range 4 {
			s.gets(0, "A "+itoa(i*1000+1)+":"+itoa(i*1000+1001)+" ack 1")
		}
		s.sends(0, "A 1:1 ack 4001 win 0")
		s.read(1000)
		s.sends(1 * ms) // less than min(MSS, half): no update
		s.drops(2*ms, "A 4001:4002 ack 1", DropBeyondWindow)
		s.sends(2*ms, "A 1:1 ack 4001 win 0") // a probe is answered
		s.drops(3*ms, "A 4000:4000 ack 1", DropWindow)
		s.sends(3*ms, "A 1:1 ack 4001 win 0")
		s.read(459)
		s.sends(4 * ms)
		s.read(1)
		s.sends(4*ms, "A 1:1 ack 4001 win 1460")
		s.read(540)
		s.sends(5 * ms)
		s.read(1460)
		s.sends(6*ms, "A 1:1 ack 4001 win 3460") // by half of the buffer
	})
}

func TestWindowCountsFrames(t *testing.T) { // octets and frames
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { cfg.RcvBuf, st.RcvWnd = 100000, 1000 })
		s.m.share = 10
		s.gets(0, "A 1:1001 ack 1")
		s.read(1000)
		s.sends(0, "A 1:1 ack 1001 win 14600")
		s.gets(0, "A 1001:2001 ack 1")
		s.gets(0, "A 2001:3001 ack 1")
		s.sends(1*ms, "A 1:1 ack 3001 win 12600") // what was advertised; 8 frames make 11680
		s.m.share = 1
		s.gets(2*ms, "A 3001:4001 ack 1")
		s.sends(50*ms, "A 1:1 ack 4001 win 11600") // never taken back
	})
}

func TestWindowScaleGranularity(t *testing.T) { // RFC 7323 §2.4
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvScale, cfg.RcvBuf, st.RcvWnd = 8, 20000, 10240 })
		s.m.share = 64
		s.gets(0, "A 1:101 ack 1")
		s.read(100)
		s.sends(0, "A 1:1 ack 101 win 78") // 20000 in whole units
		// Without a reader: rounded up, until that is a whole unit more than the memory.
		at, unit := 101, 256
		for s.c.room() > 0 {
			n := min(1000, int(s.c.rcvAdv-s.c.rcvNxt))
			if n == 0 {
				break
			}
			before := s.c.rcvAdv
			s.drops(0, "A "+itoa(at)+":"+itoa(at+n)+" ack 1", DropNone)
			at += n
			s.c.ackNow = true
			s.c.Transmit(s.now, s)
			field, _ := s.c.offer()
			edge := s.c.rcvNxt + seqOf(int(field)*unit)
			if int32(before-edge) >= int32(unit) {
				t.Errorf("edge moved from %d to %d: a unit or more", before, edge)
			}
			if over := int(int32(s.c.rcvAdv-s.irs-1)) - 100 - 20000; over > unit {
				t.Errorf("promised %d octets more than there is memory", over)
			}
		}
		// Octets within the advertised window are accepted to the last one.
		if s.c.rcvNxt != s.c.rcvAdv && s.c.room() > 0 {
			t.Errorf("%d octets of promise were not used", s.c.rcvNxt.Until(s.c.rcvAdv))
		}
	})
}

func TestTinyBufferLargeScale(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvScale, cfg.RcvBuf, st.RcvWnd = 14, 4000, 0 })
		s.drops(0, "A 1:2 ack 1", DropBeyondWindow)
		s.sends(0, "A 1:1 ack 1 win 1") // a buffer smaller than a unit still opens
		s.drops(0, "A 1:1001 ack 1", DropNone)
	})
}

func TestPeerIgnoresTheWindow(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvWnd, cfg.RcvBuf = 1500, 1500 })
		s.drops(0, "A 1:1001 ack 1", DropNone)
		s.drops(0, "FA 1001:2001 ack 1", DropBeyondWindow) // 500 are taken, the FIN is not
		s.sends(0, "A 1:1 ack 1501 win 0")
		s.drops(1*ms, "A 1501:2501 ack 1", DropBeyondWindow)
		s.sends(1*ms, "A 1:1 ack 1501 win 0")
		s.drops(2*ms, "A 2501:3501 ack 1", DropWindow)
		s.sends(2*ms, "A 1:1 ack 1501 win 0")
		s.is(Established)
		s.read(1500)
	})
}

func TestClosedWindowTakesACKs(t *testing.T) { // RFC 9293 §3.10.7.4: special allowance
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.RcvWnd, cfg.RcvBuf = 0, 100 })
		s.write(500)
		s.sends(0, "PA 1:501 ack 1 win 100")
		s.gets(1*ms, "A 1:101 ack 1")
		s.gets(1*ms, "A 101:102 ack 501") // text beyond the window, a good ACK
		if s.c.Unacked() != 0 {
			t.Error("the ACK field was not looked at")
		}
		s.gets(1*ms, "FA 101:101 ack 501") // a FIN takes no memory
		s.is(CloseWait)
	})
}

func TestUnreadOctetsAtTakeOver(t *testing.T) { // octets that the kernel had received
	each(t, func(s *script) {
		unread := make([]byte, 300)
		for i := range unread {
			unread[i] = byte(i - 299) // octets -299 to 0
		}
		s.open(func(st *State, _ *Config) { st.Unread = unread })
		if !s.c.Arrived() || s.c.Arrived() {
			t.Error("Arrived does not report them once")
		}
		s.gets(0, "A 1:1001 ack 1")
		s.read(1300)
	})
	each(t, func(s *script) { // an ACK that the kernel still owed
		s.open(func(st *State, _ *Config) { st.RcvNxt += 100; st.RcvWnd += 100 })
		s.sends(0, "A 1:1 ack 101") // at once: the peer has waited long enough
	})
}

func TestPAWS(t *testing.T) { // RFC 7323 §5
	each(t, func(s *script) {
		s.open(withTS)
		s.write(10)
		s.sends(0, "PA 1:11 ack 1 ts 1000/0") // TS.Recent is not known yet
		s.gets(1*ms, "A 1:101 ack 11 ts 500/1000")
		s.drops(1*ms, "A 101:201 ack 11 ts 499/1000", DropPAWS)
		s.sends(1*ms, "A 11:11 ack 101 ts 1001/500")
		s.drops(2*ms, "A 101:201 ack 11", DropNoTimestamp)
		s.sends(2 * ms)
		s.drops(3*ms, "A 201:301 ack 11 ts 600/1000", DropNone)
		s.sends(3*ms, "A 11:11 ack 101 ts 1003/500") // out of order: not echoed
		s.gets(4*ms, "A 101:201 ack 11 ts 501/1000")
		s.sends(4*ms, "A 11:11 ack 301 ts 1004/501")
		day := 24 * time.Hour
		s.drops(24*day, "A 301:401 ack 11 ts 400/1000", DropPAWS)
		s.sends(24*day, "A 11:11 ack 301")
		s.drops(24*day+10*time.Second, "A 301:401 ack 11 ts 400/1000", DropNone)
		s.sends(24*day+11*time.Second, "A 11:11 ack 401 ts 2073612000/400")
		s.drops(25*day, "RA 401:401 ack 11", DropNone) // RST is exempt
		s.is(Closed)
	})
}

// The kernels have negotiated microsecond timestamps (tcp_usec_ts). After 36 minutes of silence the peer's timestamp
// has moved by more than 2^31, and is not old.
func TestPAWSMicroseconds(t *testing.T) { // RFC 7323 §5.5
	each(t, func(s *script) {
		s.open(withTS, func(st *State, _ *Config) { st.TSTick = time.Microsecond })
		s.gets(0, "PA 1:101 ack 1 ts 1000/1000")
		s.drops(35*time.Minute, "PA 101:201 ack 1 ts 999/1000", DropPAWS)
		for i, silence := range []time.Duration{40 * time.Minute, 100 * time.Minute} {
			val := uint32(1000 + silence.Microseconds())
			from := 101 + 100*i
			s.drops(silence, "PA "+itoa(from)+":"+itoa(from+100)+" ack 1 ts "+itoa(int(val))+"/1000", DropNone)
		}
		s.read(300)
	})
}

func TestTimestampWrap(t *testing.T) { // RFC 7323 §5.2: modulo 2^32
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Timestamps, st.TSNow = true, 0xffffffff })
		s.gets(0, "A 1:101 ack 1 ts 4294967295/0")
		s.sends(40*ms, "A 1:1 ack 101 ts 39/4294967295")
		s.drops(41*ms, "A 101:201 ack 1 ts 1/0", DropNone)
		s.drops(41*ms, "A 201:301 ack 1 ts 4294967295/0", DropPAWS)
		s.sends(41*ms, "A 1:1 ack 201 ts 40/1")
	})
}
