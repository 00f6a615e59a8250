package faults

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// volume is how many octets each direction of a connection carries.
const volume = 64 << 20

// weather is the plan of a bad cable. Of a hundred segments one is lost, one arrives up to MostLate late, and one
// arrives twice. Of two hundred one is corrupted. The first FIN is also lost.
var weather = Plan{Drop: Percent(1), Spoil: Percent(0.5), Twice: Percent(1), Late: Percent(1), FINs: 1}

// showers are the same faults at a fifth of the rates. Without SACK the kernel hardly repairs more than one loss
// without a timeout.
var showers = Plan{Drop: Percent(0.2), Spoil: Percent(0.1), Twice: Percent(0.2), Late: Percent(0.2), FINs: 1}

// match is a connection between stag's TCP and the kernel's.
type match struct {
	*rig
	send, expect uint64    // octets from our side, and from the other side
	first        pair.Side // the side that closes first
	begun        time.Time
	flow         *nic.Flow
	ulp          *octets.Transfer
	peer         *plain
}

// start takes the local end over. Both sides then send over the cable with plan p.
func (m *match) start(our, peer *net.TCPConn, p Plan) {
	m.Helper()
	m.both(p)
	m.peer = (&plain{conn: peer, send: m.expect, out: seedTheirs, in: seedOurs}).start()
	m.ulp = octets.NewTransfer(octets.Plan{Send: m.send, Seed: seedOurs, Expect: m.expect, PeerSeed: seedTheirs, Hold: true})
	var err error
	m.flow, err = m.nic.Take(m.Ctx(), our, m.ulp, nic.DefaultOptions)
	m.Must(err)
	m.begun = time.Now()
}

// finish waits for every octet, and closes both directions.
func (m *match) finish() {
	m.Helper()
	m.arrives()
	m.Logf("%d and %d octets in %v", m.send, m.expect, time.Since(m.begun))
	m.close()
}

// arrives waits until every octet has arrived.
func (m *match) arrives() {
	m.Helper()
	for end := time.Now().Add(patience); m.peer.received.Load() < m.send || m.ulp.Received() < m.expect; {
		select {
		case err := <-m.peer.read:
			m.Fatalf("the peer read %d octets: %v", m.peer.received.Load(), err)
		case <-m.ulp.Done():
			m.Fatalf("our side got %d octets: %v", m.ulp.Received(), m.ulp.Err())
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			info, err := m.flow.Info(m.Ctx())
			m.Fatalf("not within %v: the peer has %d octets, we have %d; %+v %v", patience, m.peer.received.Load(), m.ulp.Received(), info, err)
		}
	}
	m.Must(<-m.peer.wrote)
}

// close closes both directions, in the order of the match, and demands that both ends end without an error.
func (m *match) close() {
	m.Helper()
	if m.first == ours {
		m.ulp.Release()
		m.flow.Ring()
		m.Must(<-m.peer.read)
	} else {
		m.Must(m.peer.conn.CloseWrite())
		m.Eventually("our side knows that the peer has closed", func() bool {
			info, err := m.flow.Info(m.Ctx())
			m.Must(err)
			return info.Phase == tcp.CloseWait
		})
		m.ulp.Release()
		m.flow.Ring()
		m.Must(<-m.peer.read)
	}
	m.Must(m.peer.conn.Close())
	m.Wait(m.ulp.Done(), "the end of our side")
	m.Must(m.ulp.Err())
	if n := m.peer.received.Load(); n != m.send {
		m.Errorf("the peer got %d octets of %d", n, m.send)
	}
	if m.first == theirs { // otherwise the socket stays in TIME-WAIT
		m.Eventually("no flow is left", func() bool { return len(m.nic.Flows()) == 0 })
	}
}

// enough is how often a fault must have hit a direction with data for its test to be meaningful. The smallest
// expected number is about fifty.
const enough = 15

// report prints what the cable did, and demands that it had the planned faults, and that both ends had to repair
// them.
func (m *match) report(p Plan) {
	m.Helper()
	m.Logf("from us: %v", m.tally(ours))
	m.Logf("from the kernel: %v", m.tally(theirs))
	m.Logf("%+v; not used: %v", m.flow.Final(), m.drops())
	if m.send > 0 {
		m.happened(ours, p)
		m.worked(p, m.flow.Final().Retransmits, m.kernelCounter(theirs, "InCsumErrors"), m.kernelCounter(theirs, "TCPOFOQueue"))
	}
	if m.expect > 0 {
		m.happened(theirs, p)
		m.worked(p, m.kernelCounter(theirs, "RetransSegs"), m.drops()["wire "+wire.BadTCPChecksum.String()], m.flow.Final().OutOfOrder)
	}
}

// happened demands that the faults of the plan hit what a side sent.
func (m *match) happened(side pair.Side, p Plan) {
	m.Helper()
	t := m.tally(side)
	for _, fault := range []struct {
		what    string
		planned Rate
		n       uint64
	}{{"dropped", p.Drop, t.Dropped}, {"spoilt", p.Spoil, t.Spoilt}, {"doubled", p.Twice, t.Twice}, {"delayed", p.Late, t.Late}} {
		if fault.planned != 0 && fault.n < enough {
			m.Errorf("side %v: %d segments were %s, want %d or more", side, fault.n, fault.what, enough)
		}
	}
	if t.FINs != uint64(p.FINs) {
		m.Errorf("side %v: %d FINs were lost, want %d", side, t.FINs, p.FINs)
	}
}

// worked demands that the sender and the receiver of a direction have counted the faults.
func (m *match) worked(p Plan, again, spoilt, early uint64) {
	m.Helper()
	if p.Drop+p.Spoil > 0 && again < enough {
		m.Errorf("%d segments were sent again, want %d or more", again, enough)
	}
	if p.Spoil > 0 && spoilt < enough {
		m.Errorf("%d spoilt segments arrived, want %d or more", spoilt, enough)
	}
	if p.Drop+p.Spoil+p.Late > 0 && early < enough {
		m.Errorf("%d segments came out of order, want %d or more", early, enough)
	}
}

// option is a set of TCP options that both ends negotiate.
type option struct {
	name   string
	sysctl map[string]string // settings of the peer
	plan   Plan
}

var options = []option{
	{"SACK and timestamps", nil, weather},
	{"no timestamps", map[string]string{"ipv4/tcp_timestamps": "0"}, weather},
	{"no SACK", map[string]string{"ipv4/tcp_sack": "0"}, showers},
	{"neither", map[string]string{"ipv4/tcp_sack": "0", "ipv4/tcp_timestamps": "0"}, showers},
}

// controls returns the congestion controls that the kernel offers.
func controls(t *testing.T) []string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// longVariable is the environment variable that selects all cases.
const longVariable = "STAG_LONG"

// TestKernel transfers 64 MiB with the faults of weather in each direction. It does so with every congestion control of
// the kernel, with and without options, and with either end closing first. The engine continues with the kernel's
// algorithm, or with CUBIC if stag does not have that algorithm. Without STAG_LONG=1 the test runs a quarter of the
// cases: each algorithm with each set of options, with alternating directions and orders.
func TestKernel(t *testing.T) {
	all := os.Getenv(longVariable) != ""
	for i, cc := range controls(t) {
		for j, o := range options {
			for n := range 4 {
				sends, first := pair.Side(n%2), pair.Side(n/2)
				if !all && n != (i+j)%4 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%v sends, %v closes", cc, o.name, sends, first), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, Config{Seed: uint64(100*i + 10*j + n)})
					r.open()
					for name, value := range o.sysctl {
						r.setSysctl(theirs, name, value)
					}
					our, peer := r.connect(false)
					r.congestion(our, cc)
					r.congestion(peer, cc)
					m := &match{rig: r, first: first}
					if sends == ours {
						m.send = volume
					} else {
						m.expect = volume
					}
					m.start(our, peer, o.plan)
					m.finish()
					m.report(o.plan)
				})
			}
		}
	}
}

// TestOneFault tests each fault alone, at a higher rate, in both directions of one connection at once.
func TestOneFault(t *testing.T) {
	for i, c := range []struct {
		name string
		plan Plan
	}{
		{"dropped", Plan{Drop: Percent(3)}},
		{"spoilt", Plan{Spoil: Percent(3)}},
		{"doubled", Plan{Twice: Percent(30)}},
		{"delayed", Plan{Late: Percent(10)}},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/v6 %v", c.name, v6), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, Config{Seed: uint64(i)})
				r.open()
				our, peer := r.connect(v6)
				r.congestion(our, "cubic")
				r.congestion(peer, "cubic")
				m := &match{rig: r, send: volume / 8, expect: volume / 8, first: pair.Side(i % 2)}
				m.start(our, peer, c.plan)
				m.finish()
				m.report(c.plan)
			})
		}
	}
}
