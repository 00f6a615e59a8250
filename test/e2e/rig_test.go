package e2e

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/netns"
	common "github.com/stag-rdma/stag/test/rig"
)

// ours and theirs are the two sides. A has an offloaded interface, and B is a plain kernel.
const (
	ours   = pair.A
	theirs = pair.B
)

// setup describes a rig. The zero value is the usual rig.
type setup struct {
	pair pair.Config
	nic  nic.Config // newStage fills in Link
	// sysctl settings of the peer's namespace, below /proc/sys/net.
	sysctl map[string]string
	// before runs when the pair exists and has no program yet.
	before func(*pair.Pair)
}

// rig is the set-up of a test. It is removed when the test ends.
type rig struct {
	common.Stage
	pair  *pair.Pair
	nic   *nic.NIC
	shown bool // the state of the kernels has been printed
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	r := newStage(t, s)
	r.open(s.nic)
	return r
}

// newStage makes a rig without an offloaded interface.
func newStage(t testing.TB, s setup) *rig {
	t.Helper()
	r := &rig{Stage: common.On(t), pair: netns.XDPPair(t, s.pair)}
	t.Cleanup(func() {
		if r.nic != nil {
			r.Check(r.nic.Close())
		}
	})
	for name, value := range s.sysctl {
		r.in(theirs, func() error { return netns.Sysctl(name, value) })
	}
	if s.before != nil {
		s.before(r.pair)
	}
	return r
}

// open offloads the local interface. It fills in Config.Link.
func (r *rig) open(c nic.Config) {
	r.Helper()
	c.Link = r.pair.Ends[ours].Name
	r.in(ours, func() (err error) {
		r.nic, err = nic.Open(c)
		return err
	})
}

// in runs f inside a side's namespace.
func (r *rig) in(side pair.Side, f func() error) {
	r.Helper()
	netns.In(r, r.pair, side, f)
}

// listen listens on a side, as a plain kernel program does.
func (r *rig) listen(side pair.Side, v6 bool) *net.TCPListener {
	r.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	var l net.Listener
	r.in(side, func() (err error) {
		l, err = lc.Listen(context.Background(), "tcp", net.JoinHostPort(r.addr(side, v6), "0"))
		return err
	})
	r.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// addr returns a side's address.
func (r *rig) addr(side pair.Side, v6 bool) string {
	if v6 {
		return r.pair.Ends[side].V6.Addr().String()
	}
	return r.pair.Ends[side].V4.Addr().String()
}

// way says which side opens a connection, and with which IP version.
type way struct {
	accept bool // the local side listens, and the peer dials
	v6     bool
}

func (w way) String() string {
	s := "dial"
	if w.accept {
		s = "accept"
	}
	if w.v6 {
		return s + "/v6"
	}
	return s + "/v4"
}

// ways lists all ways.
var ways = []way{{}, {accept: true}, {v6: true}, {accept: true, v6: true}}

// connect opens a connection and returns both ends.
func (r *rig) connect(w way) (our, peer *net.TCPConn) {
	r.Helper()
	our, peer, err := r.tryConnect(w)
	r.Must(err)
	return our, peer
}

// tryConnect does the same as connect, for goroutines that may not end the test.
func (r *rig) tryConnect(w way) (our, peer *net.TCPConn, err error) {
	listener, dialer := theirs, ours
	if w.accept {
		listener, dialer = ours, theirs
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	d := net.Dialer{Timeout: 10 * time.Second}
	switch {
	case r.nic == nil:
	case w.accept:
		lc.Control = r.nic.Control
	default:
		d.Control = r.nic.Control
	}
	var l net.Listener
	err = r.pair.Do(listener, func() (err error) {
		l, err = lc.Listen(context.Background(), "tcp", net.JoinHostPort(r.addr(listener, w.v6), "0"))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var dialled, accepted net.Conn
	err = r.pair.Do(dialer, func() (err error) {
		dialled, err = d.Dial("tcp", l.Addr().String())
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("dial: %w", err)
	}
	if accepted, err = l.Accept(); err != nil {
		dialled.Close()
		return nil, nil, err
	}
	r.Cleanup(func() {
		dialled.Close()
		accepted.Close()
	})
	if w.accept {
		dialled, accepted = accepted, dialled
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn), nil
}

// take takes the local end over, or ends the test.
func (r *rig) take(c *net.TCPConn, ulp stream.ULP) *nic.Flow {
	r.Helper()
	f, err := r.nic.Take(r.Ctx(), c, ulp, nic.DefaultOptions)
	r.Must(err)
	return f
}

// counters returns the sum of all engines' counters.
func (r *rig) counters() (sum engine.Counters) {
	r.Helper()
	for _, e := range r.nic.Engines() {
		c, err := e.Counters(r.Ctx())
		r.Must(err)
		sum.Add(&c)
	}
	return sum
}

// clean fails the test if anything of a flow is left: entries of the steering program, or flows of the interface.
// Flows in TIME-WAIT may be left.
func (r *rig) clean() {
	r.Helper()
	r.Eventually("no flow is left", func() bool { return len(r.nic.Flows()) == 0 && r.entries() == 0 })
}

// entries returns how many flows the steering program knows.
func (r *rig) entries() (n int) {
	r.Helper()
	r.Must(r.nic.Steering().Flows(func(bpfFlowKey, bpfFlow) bool { n++; return true }))
	return n
}
