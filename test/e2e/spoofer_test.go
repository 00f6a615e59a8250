package e2e

import (
	"strings"

	"github.com/stag-rdma/stag/test/packet"
)

// These are limits between two snapshots: how far the transfer proceeds, in octets, and how old a timestamp in use can
// be, in ticks.
const (
	inFlight = 32 << 20
	tsSlack  = 60_000
)

// segment returns one spoofed segment: noise, or a guess with one wrong field.
func (s *spoofer) segment() packet.TCP {
	for {
		p := s.noise()
		switch s.random.IntN(10) {
		case 0: // right, but for the ACK field
			s.aim(&p, int(s.seen.RcvWnd))
			p.Ack = uint32(s.seen.SndNxt) + inFlight + s.random.Uint32()%(1<<30)
		case 1: // right, but old
			s.aim(&p, int(s.seen.RcvWnd))
			p.TS = &packet.TS{Val: s.clock.Load() - tsSlack - s.random.Uint32()%(1<<30), Ecr: s.random.Uint32()}
		case 2: // right, but received before
			s.aim(&p, 1)
			p.Seq = uint32(s.seen.RcvNxt) - uint32(len(p.Payload)) - 2 - s.random.Uint32()%(64<<10)
		case 3: // right, but beyond the window
			s.aim(&p, 1)
			p.Seq = uint32(s.seen.RcvNxt) + 2*inFlight + s.random.Uint32()%(1<<29)
		case 4: // right, but for the timestamp, which is missing
			s.aim(&p, int(s.seen.RcvWnd))
			p.TS = nil
		case 5: // a reset near the one number
			s.aim(&p, int(s.seen.RcvWnd))
			p.Flags = "R" + p.Flags
		case 6: // a SYN, anywhere near
			s.aim(&p, 64<<10)
			p.Flags = "S" + p.Flags
		case 7: // all right, a reset too, but for the checksum
			s.aim(&p, 1)
			p.Seq, p.Sum = uint32(s.seen.RcvNxt), packet.SumWrong
			p.Flags = []string{"RA", "FA", "A", "PA"}[s.random.IntN(4)]
		}
		if !s.hits(p) {
			return p
		}
	}
}

// noise returns a segment of the tuple with everything else at random.
func (s *spoofer) noise() packet.TCP {
	p := s.segmentOf(s.x.flow)
	p.Seq, p.Ack = s.random.Uint32(), s.random.Uint32()
	p.Window, p.Urgent = uint16(s.random.Uint32()), uint16(s.random.Uint32())
	p.TTL, p.TOS = uint8(1+s.random.IntN(255)), uint8(s.random.Uint32())
	for _, f := range "FSRPAUEC" {
		if s.random.IntN(2) == 0 {
			p.Flags += string(f)
		}
	}
	if p.Flags == "" {
		p.Flags = "U" // the builder replaces empty flags by an ACK
	}
	room := 10 // number of words for options
	if s.random.IntN(2) == 0 {
		p.TS = &packet.TS{Val: s.random.Uint32(), Ecr: s.random.Uint32()}
		room -= 3
	}
	switch s.random.IntN(4) {
	case 0:
		for range 1 + s.random.IntN((room-1)/2) {
			p.SACK = append(p.SACK, [2]uint32{s.near(uint32(s.seen.SndUna), 1<<20), s.random.Uint32()})
		}
	case 1:
		p.Raw = [][]byte{{8, 3, 0, 0}, {5, 0, 1, 1}, {254, 40, 0, 0}, {1, 1, 1, 5}}[s.random.IntN(4)]
	}
	p.Payload = make([]byte, []int{0, 1, s.random.IntN(64), s.random.IntN(1400)}[s.random.IntN(4)])
	for i := range p.Payload {
		p.Payload[i] = byte(s.random.Uint32())
	}
	return p
}

// aim makes a segment right, or nearly right. Its sequence number is less than spread away from the next expected one.
func (s *spoofer) aim(p *packet.TCP, spread int) {
	p.Seq = s.near(uint32(s.seen.RcvNxt), max(spread, 1))
	p.Ack = uint32(s.seen.SndUna)
	p.Flags = []string{"A", "PA", "FA", "UA", "FPA"}[s.random.IntN(5)]
	p.Raw = nil
	p.TS = nil
	if s.stamped.Load() {
		p.TS = &packet.TS{Val: s.clock.Load(), Ecr: s.random.Uint32()}
		p.SACK = p.SACK[:min(len(p.SACK), 3)]
	}
}

// hits reports whether a spoofed segment could be one that only an attacker on the path can send. The connection may
// have proceeded since the snapshot.
func (s *spoofer) hits(p packet.TCP) bool {
	next := uint32(s.seen.RcvNxt)
	end := p.Seq + uint32(len(p.Payload)) + 1
	near := beyond(p.Seq, next, inFlight) || beyond(end, next, inFlight)
	switch {
	case p.Sum == packet.SumWrong:
		return false
	case strings.Contains(p.Flags, "R"):
		// The lengths of full segments and of windows are multiples of four octets. So are the numbers that a reset
		// could hit.
		return near && (p.Seq-next)%4 == 0
	case strings.Contains(p.Flags, "S") || !strings.Contains(p.Flags, "A"):
		return false
	}
	acks := beyond(p.Ack, uint32(s.seen.SndUna)-2*inFlight, 3*inFlight)
	fresh := !s.stamped.Load() || p.TS != nil && beyond(p.TS.Val, s.clock.Load()-tsSlack/2, 1<<31-1)
	return near && acks && fresh
}

// beyond reports whether n is from, or less than much after it.
func beyond(n, from, much uint32) bool { return n-from < much }
