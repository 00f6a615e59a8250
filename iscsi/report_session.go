package iscsi

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/report"
)

// lookout lets reports see a session of either role.
type lookout struct {
	// The owner sets these fields before add.
	role     string
	depth    int
	began    time.Time
	device   string // name of the device of the youngest connection; of guards it after add
	look     func(*flow.Glance)
	describe func(*report.Session) // sets what does not change between two logins
	disks    func() []report.LUN   // units that an initiator has opened; nil: none

	// add sets these fields.
	of     *reports
	number uint32

	mu            sync.Mutex // held while live changes, and while steps are looked at; engines only try to take it
	live          *adapter.Conn
	between       func(func()) // of iSER: runs a function between two steps of the live connection; nil: none
	iser          bool
	local, remote netip.AddrPort // of live, or of the connection that is being taken over
	state         string
	fault         string
	recoveries    uint64

	// of guards these fields.
	last flow.Glance  // the newest Glance
	base *flow.Glance // the part of last that is in the sums of ended connections
	gone bool
}

// connecting tells which connection is about to be taken over, for captures.
func (x *lookout) connecting(local, remote netip.AddrPort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.local, x.remote = local, remote
}

// connected tells that the machine has a connection. again: it is not the first.
func (x *lookout) connected(c *adapter.Conn, device string, again bool) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	if x.gone {
		return
	}
	x.device = device
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live = c
	if again {
		x.recoveries++
		at := place{x.device, x.role}
		x.of.counted[at] = plus(x.of.counted[at], x.counters(&flow.Glance{}), x.counters(&flow.Glance{}))
		for i := range x.of.counted[at] {
			if x.of.counted[at][i].Name == "recoveries" {
				x.of.counted[at][i].Value++
			}
		}
	}
}

// linked tells that the machine has a connection of either kind.
func (x *lookout) linked(c interface{ Device() string }, again bool) {
	conn, _ := c.(*adapter.Conn)
	if i, is := c.(interface{ Between(func()) }); is {
		x.of.mu.Lock()
		x.mu.Lock()
		x.between, x.iser = i.Between, true
		x.mu.Unlock()
		x.of.mu.Unlock()
	}
	x.connected(conn, c.Device(), again)
}

// lost tells that the connection has ended. No step runs.
func (x *lookout) lost() {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	x.mu.Lock()
	conn := x.connectionOf()
	x.live, x.between = nil, nil
	x.mu.Unlock()
	if conn.Conn != nil {
		x.of.adapter.Depart(conn)
	}
	x.last.Begun = make([]clock.Instant, 0, x.depth)
	x.look(&x.last)
	if x.device != "" {
		at := place{x.device, x.role}
		x.of.counted[at] = plus(x.of.counted[at], x.counters(&x.last), x.counters(x.base))
	}
	base := x.last
	x.base = &base
}

// nothing is the base of a session whose connections have not ended.
var nothing flow.Glance

// remove ends the reports of the session. No step runs, and none will.
func (x *lookout) remove() {
	x.lost()
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	x.gone = true
	delete(x.of.sessions, x)
}

// tell sets the state of the session, and why the last connection has ended.
func (x *lookout) tell(state string, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state = state; cause != nil {
		x.fault = cause.Error()
	}
}

// connection describes the connection for reports and captures.
func (x *lookout) connection() adapter.Connection {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.connectionOf()
}

func (x *lookout) connectionOf() adapter.Connection {
	return adapter.Connection{Conn: x.live, Local: x.local, Remote: x.remote, Stream: report.Stream{Kind: report.ISCSI}, Look: func() {}}
}

// steps returns what runs a function between two steps of a connection of iSER, or nil.
func (x *lookout) steps() func(func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.between
}

// glance looks at the machine between two steps of conn. It does nothing if conn is not the
// machine's connection any more, or if somebody else looks.
func (x *lookout) glance(conn *adapter.Conn, g *flow.Glance) (seen bool) {
	if !x.mu.TryLock() {
		return false
	}
	defer x.mu.Unlock()
	if seen = conn == x.live; seen {
		x.look(g)
	}
	return seen
}

// settle makes the sight the newest one that there is. The caller holds the lock of the
// reports.
func (x *sight) settle() {
	x.lookout.mu.Lock()
	defer x.lookout.mu.Unlock()
	if x.seen && x.conn == x.live && x.PDUsIn+x.PDUsOut >= x.last.PDUsIn+x.last.PDUsOut {
		x.last = x.Glance
		return
	}
	x.Glance = x.last
}

// report returns the row of a session.
func (x *sight) report(now clock.Instant) report.Session {
	x.lookout.mu.Lock()
	conn, local, remote, overRDMA := x.live, x.local, x.remote, x.between != nil
	r := report.Session{
		Number: x.number, Role: x.role, State: x.state, Carrier: "tcp", Age: uint64(time.Since(x.began) / time.Second),
		Depth: x.depth, Recoveries: x.recoveries, Error: x.fault,
	}
	if x.iser {
		r.Carrier = "iser"
	}
	x.lookout.mu.Unlock()
	r.Counters = x.counters(&x.Glance)
	for i := range r.Counters {
		if r.Counters[i].Name == "recoveries" {
			r.Counters[i].Value = r.Recoveries
		}
	}
	if conn != nil {
		r.Device, r.Flow, r.Local, r.Remote = conn.Device(), report.FlowID(conn.Flow()), &local, &remote
	}
	if overRDMA {
		r.Device, r.Local, r.Remote = x.device, &local, &remote
	}
	r.CommandAges = make([]int, len(report.CommandAges)+1)
	for _, at := range x.Begun {
		age := max(0, now.Sub(at))
		i := 0
		for i < len(report.CommandAges) && age >= report.CommandAges[i] {
			i++
		}
		r.CommandAges[i]++
		r.Oldest = max(r.Oldest, uint64(age/time.Microsecond))
	}
	r.InProgress = len(x.Begun)
	x.describe(&r)
	return r
}

// sessionCounters are the counters of a session.
type sessionCounters struct {
	Commands        uint64 // SCSI commands and other requests that an initiator has sent, or that a target has received
	Failed          uint64 // SCSI commands that ended without status GOOD
	PDUsIn, PDUsOut uint64 // PDUs after the login
	PlacedOctets    uint64 // data of the peer that was placed in the memory of its command, by tag
	SentOctets      uint64 // data that was sent to the peer
	Refused         uint64 // PDUs of the peer that were refused: nothing of them was placed
	DigestErrors    uint64 // PDUs with a wrong data digest
	Repaired        uint64 // PDUs and sequences of data that came whole at a later try, or were sent again (error recovery level 1)
	Recoveries      uint64 // logins of initiators after the first
	Microseconds    uint64 // sum of the latencies of completed commands
}

// counters returns the counters of a Glance, always in the same order.
func (x *lookout) counters(g *flow.Glance) []report.Counter {
	layer := "iscsi_" + x.role
	all := report.Fields(layer, sessionCounters{
		Commands: g.Commands, Failed: g.Failed, PDUsIn: g.PDUsIn, PDUsOut: g.PDUsOut, PlacedOctets: g.Placed, SentOctets: g.Sent,
		Refused: g.Refused, DigestErrors: g.DigestErrors, Repaired: g.Repaired, Microseconds: g.TookSum / 1000,
	})
	for _, why := range flow.Reasons() {
		all = append(all, report.Counter{Layer: layer + "_reason", Name: why.Word(), Value: g.Reason(why)})
	}
	for i, n := range g.Took {
		name := "longer"
		if bound := flow.LatencyBound(i); bound != 0 {
			name = fmt.Sprintf("below_%dus", bound.Microseconds())
		}
		all = append(all, report.Counter{Layer: layer + "_latency", Name: name, Value: n})
	}
	return all
}
