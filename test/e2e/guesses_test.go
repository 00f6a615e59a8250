package e2e

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

const (
	spoofs     = 100_000
	spoofsEach = 250     // between two snapshots of the connection
	lead       = 1 << 20 // octets that the peer may be ahead of the spoofer
)

// TestSpoofedGuesses sends segments and ICMP reports into a running transfer. The attacker knows the tuple and guesses
// the rest, mostly right except for one field. The test leaves out what only an attacker on the path could hit: an
// exact reset, and text, a FIN or an acknowledgement with all fields right.
func TestSpoofedGuesses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		way    way
		sysctl map[string]string
	}{
		{"v4", way{}, nil},
		{"v6", way{accept: true, v6: true}, nil},
		{"no timestamps, no SACK", way{}, map[string]string{"ipv4/tcp_timestamps": "0", "ipv4/tcp_sack": "0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSpoofer(newRig(t, setup{sysctl: c.sysctl}), c.way)
			s.spray()
			s.x.finish()
			s.survived()
		})
	}
}

// spoofer is the attacker with the transfer that it attacks.
type spoofer struct {
	*rig
	x       running
	cable   *injector
	random  *rand.Rand
	fired   atomic.Int64
	clock   atomic.Uint32 // the peer's last timestamp
	stamped atomic.Bool   // the peer uses timestamps
	seen    tcp.Info      // the last snapshot of the connection
}

// newSpoofer starts the transfer. The peer writes no faster than the spoofer sends, so that the attack lasts as long
// as the transfer.
func newSpoofer(r *rig, w way) *spoofer {
	r.Helper()
	const volume = 48 << 20
	s := &spoofer{rig: r, cable: r.injectFrom(theirs), random: rand.New(rand.NewPCG(1, 2))}
	r.listenIn(theirs, func(p *wire.Packet, outgoing bool) bool {
		if outgoing && p.TCP.HasTS {
			s.clock.Store(p.TCP.TSVal)
			s.stamped.Store(true)
		}
		return outgoing
	})
	our, peer := r.connect(w)
	s.x = running{rig: r, volume: volume}
	s.x.ulp = octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
	s.x.flow = r.take(our, s.x.ulp)
	s.x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true, pace: func(pos uint64) {
		for pos > lead && (pos-lead)*spoofs > uint64(s.fired.Load())*(volume-2*lead) {
			time.Sleep(time.Millisecond)
		}
	}}).start()
	return s
}

// spray sends all spoofed packets, as fast as the transfer proceeds.
func (s *spoofer) spray() {
	s.Helper()
	for n := uint64(0); n < spoofs; n++ {
		if n%spoofsEach == 0 {
			s.Eventually("the transfer proceeds", func() bool { return s.ended() || s.x.ulp.Received() >= n*(s.x.volume-2*lead)/spoofs })
			s.look()
			s.Must(s.cable.send(s.tooBig()))
		}
		s.Must(s.cable.send(s.segment().Bytes()))
		s.fired.Add(1)
	}
	s.fired.Store(2 * spoofs) // the peer no longer waits
}

func (s *spoofer) ended() bool {
	select {
	case <-s.x.flow.Done():
		return true
	default:
		return false
	}
}

// look takes the snapshot on which the guesses are based.
func (s *spoofer) look() {
	s.Helper()
	info, err := s.x.flow.Info(s.Ctx())
	if err != nil {
		s.Fatalf("after %d segments: %v; %v", s.fired.Load(), err, s.x.flow.Err())
	}
	s.seen = info
}

// survived checks that every kind of spoofed packet was detected and had no effect.
func (s *spoofer) survived() {
	s.Helper()
	got := map[string]uint64{}
	c := s.counters()
	c.Drops(func(layer, reason string, n uint64) { got[layer+" "+reason] = n })
	final := s.x.flow.Final()
	s.Logf("%d segments, %d reports; not used, by reason: %v", spoofs, spoofs/spoofsEach, got)
	s.Logf("%+v; %v", final, s.lost())
	want := []string{
		"wire " + wire.BadTCPChecksum.String(),
		"tcp " + tcp.DropWindow.String(), "tcp " + tcp.DropDuplicate.String(), "tcp " + tcp.DropBadACK.String(),
		"tcp " + tcp.DropSYN.String(), "tcp " + tcp.DropRSTWindow.String(), "tcp " + tcp.DropRSTChallenged.String(),
		"tcp " + tcp.DropTooBigSeq.String(),
	}
	if s.stamped.Load() {
		want = append(want, "tcp "+tcp.DropPAWS.String(), "tcp "+tcp.DropNoTimestamp.String())
	}
	for _, reason := range want {
		if got[reason] < 100 {
			s.Errorf("%d spoofs were refused as %q, want 100 or more", got[reason], reason)
		}
	}
	if final.ResetsIn != 0 || final.ResetsOut != 0 || final.TooBigs != 0 {
		s.Errorf("a spoof had an effect: %+v", final)
	}
}

// near returns a number that is less than spread away from n.
func (s *spoofer) near(n uint32, spread int) uint32 {
	return n + uint32(s.random.IntN(2*spread)-spread)
}

// tooBig returns a router's report about a segment that is not in flight.
func (s *spoofer) tooBig() []byte {
	p := s.segmentOf(s.x.flow)
	quoted := packet.TCP{Link: p.Link, IP: packet.IP{Src: p.Dst, Dst: p.Src}, Flags: "A", Seq: s.random.Uint32()}
	for beyond(quoted.Seq, uint32(s.seen.SndUna), inFlight) {
		quoted.Seq = s.random.Uint32()
	}
	return packet.TooBig{Link: p.Link, IP: p.IP, MTU: s.random.Uint32N(1500), Quote: quoted.Bytes()}.Bytes()
}
