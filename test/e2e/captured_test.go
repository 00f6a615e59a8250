package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/need"
)

// smallBuffer limits the segments that the peer has in flight to fewer than the cable's ring of 256 holds, so that none
// is lost. The kernel doubles the value for its own structures. The engine's send buffer limits the other direction. It
// holds fewer segments than the peer's backlog of 1000.
func smallBuffer(peer *net.TCPConn) error {
	return setOption(peer, unix.SOL_SOCKET, unix.SO_SNDBUF, 96<<10)
}

// noGuesses keeps the peer from sending tail-loss probes. A probe is sent after twice the round-trip time, which is a
// few milliseconds here. If an engine does not run for that long, the probe is unnecessary.
var noGuesses = map[string]string{"ipv4/tcp_early_retrans": "0"}

// TestCaptured transfers 64 MiB in each direction on a cable without loss, and tshark checks the capture. In a
// connection that is idle when it is taken over, tshark finds no fault from the first segment to the last.
func TestCaptured(t *testing.T) {
	t.Parallel()
	for _, w := range []way{{}, {accept: true, v6: true}} {
		onFreeLink(t, w.String(), func(t *testing.T) bool {
			r := newRig(t, setup{sysctl: noGuesses})
			d := r.dumpAt(theirs)
			our, peer := r.connect(w)
			r.Must(smallBuffer(peer))
			x := running{rig: r, volume: 64 << 20}
			x.ulp = octets.NewTransfer(octets.Plan{Send: x.volume, Seed: seedOurs, Expect: x.volume, PeerSeed: seedTheirs})
			x.flow = r.take(our, x.ulp)
			x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: x.volume, halfShut: true}).start()
			x.finish()
			d.end(r)
			t.Logf("%v; %+v", r.lost(), x.flow.Final())
			return r.judge(d, time.Time{}, x.flow.Final().SegsOut, x.flow.Final().SegsIn)
		})
	}
}

// TestCapturedFire takes a connection over in full traffic. Segments in flight at that time may be sent again within
// a second, and nothing else may, although the traffic never stops.
func TestCapturedFire(t *testing.T) { onFreeLink(t, "full traffic", capturedFire) }

func capturedFire(t *testing.T) bool {
	const volume, early = 64 << 20, 1 << 20
	r := newRig(t, setup{sysctl: noGuesses})
	d := r.dumpAt(theirs)
	our, peer := r.connect(way{})
	r.Must(smallBuffer(peer))
	gate := make(chan struct{})
	x := running{rig: r, volume: volume}
	x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true, pace: slowlyFrom(2*early, gate)}).start()
	before := &talk{conn: our, out: seedOurs, in: seedTheirs, send: 2 * early}
	r.Must(before.upTo(early))
	x.ulp = octets.NewTransfer(octets.Plan{
		Send: volume, Seed: seedOurs, Sent: before.sent.Load(),
		Expect: volume, PeerSeed: seedTheirs, Received: before.received.Load(),
	})
	x.flow = r.take(our, &gated{Transfer: x.ulp, early: 2 * early, gate: gate})
	taken := time.Now()
	time.Sleep(time.Second)
	close(gate)
	x.flow.Ring()
	x.finish()
	d.end(r)
	r.Logf("taken over with %+v", x.flow.Inherited())
	t.Logf("%v; %+v", r.lost(), x.flow.Final())
	return r.judge(d, taken.Add(time.Second), 32<<20/1460, 32<<20/1460)
}

// onFreeLink repeats a test until the link has lost nothing in a run, because the test requires that. On a busy machine
// the ring of 256 packets between the two ends can overrun, but not five times in a row.
func onFreeLink(t *testing.T, name string, run func(*testing.T) bool) {
	t.Helper()
	need.Root(t)
	need.XDP(t)
	need.Tool(t, "dumpcap", "tshark")
	for try := range 5 {
		free := false
		if !t.Run(fmt.Sprintf("%s/%d", name, try+1), func(t *testing.T) { free = run(t) }) || free {
			return
		}
	}
	t.Errorf("%s: the link was not free of loss in any of 5 runs", name)
}

// gated is a Transfer that sends only the required minimum until the gate opens.
type gated struct {
	*octets.Transfer
	early uint64
	gate  chan struct{}
}

func (g *gated) Transmit(now clock.Instant, s stream.Stream) {
	if g.Sent() < g.early || isOpen(g.gate) {
		g.Transfer.Transmit(now, s)
	}
}

// slowlyFrom is a talk's pace: from the given octet on it sends slowly until the gate opens.
func slowlyFrom(octet uint64, gate chan struct{}) func(uint64) {
	return func(pos uint64) {
		if pos >= octet && !isOpen(gate) {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func isOpen(gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	default:
		return false
	}
}

// judge fails the test if tshark reports a fault after a time, or if the capture does not contain everything that
// each side sent. If the link has lost something, or if the kernel's timer has made it send again, it returns false and
// does not judge. On a busy machine an engine can stand still for longer than the kernel's timeout of 200 ms. A fault
// that makes the kernel send again shows in every run.
func (r *rig) judge(d *dump, after time.Time, sent, received uint64) bool {
	r.Helper()
	if r.lost() != (losses{}) {
		r.Logf("not judged, the link was not free of loss: %v", r.lost())
		return false
	}
	found := d.read(r, after)
	if n := found[theirs].remarks["retransmission"]; n != 0 {
		r.Logf("not judged, the kernel sent %d segments again", n)
		return false
	}
	for side, least := range map[pair.Side]uint64{ours: sent, theirs: received} {
		f := &found[side]
		r.Logf("tshark on %d segments of side %v, %d with a checksum of 0xffff: %v", f.segments, side, f.negativeZero, f.remarks)
		if uint64(f.segments) < least {
			r.Errorf("the capture has only %d segments of side %v, want %d", f.segments, side, least)
		}
		for _, c := range f.complaints(side) {
			r.Errorf("tshark complains about side %v: %s", side, c)
		}
	}
	return true
}
