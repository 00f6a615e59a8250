package tcp

import (
	"fmt"
	"testing"
)

func withECN(st *State, _ *Config) { st.ECN = true }

func TestECNEcho(t *testing.T) { // RFC 3168 §6.1.3
	each(t, func(s *script) {
		s.open(withECN)
		s.gets(0, "A 1:101 ack 1 ce")
		s.sends(0, "AE 1:1 ack 101")
		s.gets(1*ms, "A 101:201 ack 1")
		s.sends(41*ms, "AE 1:1 ack 201") // until CWR
		s.gets(50*ms, "AC 201:301 ack 1")
		s.sends(90*ms, "A 1:1 ack 301")
		s.gets(100*ms, "AC 301:401 ack 1 ce") // the reduction is earlier than the mark
		s.sends(100*ms, "AE 1:1 ack 401")
		s.write(10)
		s.sends(101*ms, "PAE 1:11 ack 401 ect") // on every segment, with data too
		s.gets(110*ms, "A 401:401 ack 11 ce")   // §6.1.4: a mark on a pure ACK is ignored
		if n := s.c.Stats().CEIn; n != 2 {
			t.Errorf("%d marked segments counted", n)
		}
	})
	each(t, func(s *script) { // not negotiated
		s.open()
		s.gets(0, "A 1:101 ack 1 ce")
		s.sends(40*ms, "A 1:1 ack 101")
	})
}

// Old segments can be forged, or marked long ago.
func TestECNMarkOutsideWindow(t *testing.T) { // RFC 3168 §6.1.5
	each(t, func(s *script) {
		s.open(withECN)
		s.gets(0, "A 1:101 ack 1")
		s.sends(40*ms, "A 1:1 ack 101")
		s.drops(50*ms, "A 1:101 ack 1 ce", DropDuplicate)
		s.sends(50*ms, "A 1:1 ack 101")
		s.drops(60*ms, "A 90001:90101 ack 1 ce", DropWindow)
		s.sends(60*ms, "A 1:1 ack 101")
	})
}

func TestECTOnNewDataOnly(t *testing.T) { // RFC 3168 §6.1.4, §6.1.5
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.Cwnd = 2000 })
		s.write(2000)
		s.sends(0, "A 1:1001 ack 1 ect", "PA 1001:2001 ack 1 ect")
		s.gets(10*ms, "A 1:101 ack 1")
		s.sends(50*ms, "A 2001:2001 ack 101") // a pure ACK
		s.sends(200*ms, "A 1:1001 ack 101")   // a retransmission
		s.gets(210*ms, "A 101:101 ack 1001")
		s.sends(210*ms, "PA 1001:2001 ack 101")
		s.gets(220*ms, "A 101:101 ack 2001")
		s.c.CloseWrite()
		s.sends(220*ms, "FA 2001:2001 ack 101")
	})
	each(t, func(s *script) { // not negotiated
		s.open()
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
	})
}

func TestECTNotOnProbes(t *testing.T) { // RFC 3168 §6.1.6
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.SndWnd = 0 })
		s.write(100)
		s.sends(0)
		s.sends(200*ms, "A 0:0 ack 1")
	})
}

func TestECECutsOncePerWindow(t *testing.T) { // RFC 3168 §6.1.2
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.Cwnd = 8000 })
		s.write(15000)
		s.c.Transmit(s.now, s) // eight segments: 1 to 8001
		s.gets(10*ms, "AE 1:1 ack 1001")
		if i := s.c.Info(); i.Cwnd != 4000 || i.Ssthresh != 4000 || i.Recovering {
			t.Errorf("after a report: %+v", i)
		}
		s.sends(10 * ms) // seven are in flight
		for n := 2; n <= 4; n++ {
			s.gets(11*ms, fmt.Sprintf("AE 1:1 ack %d001", n)) // the same mark
			s.sends(11 * ms)
		}
		s.gets(12*ms, "AE 1:1 ack 5001")
		s.sends(12*ms, "AC 8001:9001 ack 1 ect") // the first new data reports the reduction ...
		s.gets(13*ms, "AE 1:1 ack 8001")
		s.sends(13*ms, "A 9001:10001 ack 1 ect", "A 10001:11001 ack 1 ect", "A 11001:12001 ack 1 ect") // ... and no other does
		if i, st := s.c.Info(), s.c.Stats(); i.Cwnd != 4000 || st.ECNCuts != 1 || st.ECEIn != 6 {
			t.Errorf("in the same window: %+v, %d cuts for %d reports", i, st.ECNCuts, st.ECEIn)
		}
		s.gets(22*ms, "A 1:1 ack 9001")   // the peer has received the report
		s.gets(23*ms, "AE 1:1 ack 10001") // a mark of the new window
		if i, st := s.c.Info(), s.c.Stats(); i.Cwnd != 2000 || st.ECNCuts != 2 {
			t.Errorf("in the next window: %+v, %d cuts", i, st.ECNCuts)
		}
	})
}

func TestECEDoesNotGrow(t *testing.T) { // RFC 3168 §6.1.2
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.Cwnd = 4000 })
		s.write(9000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "AE 1:1 ack 4001")
		if w := s.c.Info().Cwnd; w != 2000 {
			t.Errorf("window %d, want half of what was in flight", w)
		}
		s.sends(10*ms, "AC 4001:5001 ack 1 ect", "A 5001:6001 ack 1 ect")
		s.gets(20*ms, "AE 1:1 ack 6001") // as if CWR was lost: a reduction, no growth
		if w := s.c.Info().Cwnd; w != 2000 {
			t.Errorf("window %d: the floor is two segments", w)
		}
		s.sends(20*ms, "AC 6001:7001 ack 1 ect", "A 7001:8001 ack 1 ect")
	})
}

// The signal is ignored if ECN was not negotiated.
func TestECEWithoutECN(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.write(12000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "AE 1:1 ack 1001")
		if i := s.c.Info(); i.Cwnd < 10000 || s.c.Stats().ECEIn != 0 {
			t.Errorf("believed: %+v", i)
		}
		s.sends(10*ms, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
	})
}

// A loss is a reduction that is reported to the peer, and a mark in the same window causes no second reduction.
func TestLossAndECE(t *testing.T) { // RFC 3168 §6.1.2: for any reason
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.Cwnd = 8000 })
		s.write(14000)
		s.c.Transmit(s.now, s)
		for range 3 {
			s.gets(10*ms, "AE 1:1 ack 1")
		}
		if i, st := s.c.Info(), s.c.Stats(); st.ECNCuts != 1 || st.Recoveries != 1 || i.Ssthresh != 4000 {
			t.Errorf("a mark and a loss: %d cuts, %+v", st.ECNCuts, i)
		}
	})
	each(t, func(s *script) {
		s.open(withECN, withSACK, func(st *State, _ *Config) { st.Cwnd = 8000 })
		s.write(9000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-5001")
		s.gets(11*ms, "AE 1:1 ack 5001")
		if i, st := s.c.Info(), s.c.Stats(); st.ECNCuts != 0 || st.Recoveries != 1 || i.Ssthresh != 4000 {
			t.Errorf("a loss and a mark: %d cuts, %+v", st.ECNCuts, i)
		}
		s.gets(12*ms, "A 1:1 ack 8001")
		s.sends(12*ms, "PAC 8001:9001 ack 1 ect")
	})
	each(t, func(s *script) {
		s.open(withECN)
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1 ect")
		s.sends(200*ms, "PA 1:1001 ack 1")
		s.gets(210*ms, "AE 1:1 ack 1001")
		s.write(1000)
		s.sends(210*ms, "PAC 1001:2001 ack 1 ect")
		if n := s.c.Stats().ECNCuts; n != 0 {
			t.Errorf("%d cuts after a timeout of the same window", n)
		}
	})
}

// Slow start after a timeout continues although the peer has not received the report of the reduction: only new data
// can carry it, and new data comes last.
func TestECEDuringRepair(t *testing.T) {
	each(t, func(s *script) {
		s.open(withECN)
		s.write(8000)
		s.c.Transmit(s.now, s)
		s.sends(200*ms, "A 1:1001 ack 1")
		s.gets(210*ms, "AE 1:1 ack 1001")
		s.sends(210*ms, "A 1001:2001 ack 1", "A 2001:3001 ack 1")
	})
}

// A transmission that the output refuses does not clear the flag.
func TestCWRWaitsForRoom(t *testing.T) {
	each(t, func(s *script) {
		s.open(withECN, func(st *State, _ *Config) { st.Cwnd = 4000 })
		s.write(6000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "AE 1:1 ack 4001")
		s.room = 0
		s.sends(10 * ms)
		s.room = -1
		s.sends(11*ms, "AC 4001:5001 ack 1 ect", "PA 5001:6001 ack 1 ect")
	})
}
