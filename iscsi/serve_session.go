package iscsi

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/login"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// session is a normal session. It has one connection, or as many as its leading login has
// agreed on.
type session struct {
	server *Server
	key    sessionKey
	target *target
	handle uint16
	user   string
	agreed login.Params        // of the leading login
	shared *flow.TargetSession // nil: it cannot have more than one connection

	ended chan struct{} // closed when nothing is left of the session

	attaching sync.Mutex // guards the fields below, within lun.state
	nexuses   map[*lun]*unit.Nexus
	detached  bool // the units have forgotten the session

	// Server.mu guards these fields.
	conns  []*connection // that have logged in, or are about to
	ending bool          // all connections end, because one has
	lost   bool          // one has ended without a logout
}

// connection is a connection of a session.
type connection struct {
	*session
	params        login.Params
	local, remote netip.AddrPort

	ready chan struct{} // closed when conn is set
	gone  chan struct{} // closed when nothing is left of the connection
	once  sync.Once

	done    func() // ends the use of the adapter's table
	machine *flow.Target
	conn    waker // nil: not connected
	pd      tpt.PD
	tags    *tpt.Tags
	seen    *lookout     // for reports; nil before prepare has made the machine
	iser    *iser.Target // the connection, if it is one of iSER
	parted  bool         // the session goes on without the connection; Server.mu guards it
}

// waker is a connection of the adapter. Wake makes its machine step.
type waker interface {
	Wake()
	// Device returns the name that reports give to the port of the connection.
	Device() string
}

func newSession(g *greeting, key sessionKey, t *target, handle uint16, p *login.Params, user string) *session {
	s := &session{
		server: g.server, key: key, target: t, handle: handle, agreed: *p, user: user,
		ended: make(chan struct{}), nexuses: map[*lun]*unit.Nexus{},
	}
	if p.MaxConnections > 1 {
		s.shared = flow.NewTargetSession(p.CmdSN, g.server.cfg.Depth, g.server.adapter.Board())
	}
	return s
}

// add adds the connection of a login. The caller has locked Server.mu.
func (e *session) add(g *greeting, p *login.Params) *connection {
	c := &connection{
		session: e, params: *p, local: g.local, remote: g.remote,
		ready: make(chan struct{}), gone: make(chan struct{}),
	}
	e.conns = append(e.conns, c)
	return c
}

// connections returns the connections.
func (e *session) connections() []*connection {
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	return slices.Clone(e.conns)
}

// spareSlots is how many slots a session has for immediate requests.
const spareSlots = 16

// slots returns how many slots a session has. At error recovery level 1 a command keeps its
// slot until its status is acknowledged.
func (c *ServerConfig) slots(level uint8) int {
	n := c.Depth + spareSlots
	if level != 0 {
		n += c.Depth + spareSlots
	}
	return n
}

// prepare makes the machine of a connection that is a stream.
func (e *connection) prepare() error {
	s := e.server
	var err error
	if e.done, err = s.adapter.Use(); err != nil {
		return err
	}
	table := s.adapter.Table()
	if e.pd, err = table.NewPD(); err != nil {
		return err
	}
	if e.tags, err = reserveTags(s.adapter, e.pd, s.cfg.slots(e.params.ErrorRecoveryLevel)); err != nil {
		return err
	}
	e.equip(flow.TargetConfig{Tags: e.tags}, false)
	return nil
}

// equip makes the machine. staged says that units whose memory is not registered do not lend
// it.
func (e *connection) equip(c flow.TargetConfig, staged bool) {
	s := e.server
	e.params.TSIH = e.handle
	name := fmt.Sprintf("%s,i,0x%x", e.key.initiator, e.key.isid[:])
	allowed := e.allowed()
	list := func() []uint64 { return allowed }
	luns := map[uint64]*flow.LUN{}
	for _, id := range allowed {
		luns[id] = e.attach(e.target.luns[id], name, list)
	}
	for id, l := range luns {
		l.Staged = staged && !e.target.luns[id].registered
	}
	c.Params, c.Window, c.Board, c.Pool, c.Ping, c.Session = e.params, s.cfg.Depth, s.adapter.Board(), s.pool, s.cfg.Ping, e.shared
	c.LUNs, c.Absent = luns, e.attach(e.target.absent, name, list)
	e.machine = flow.NewTarget(c)
	e.machine.Work.Fire = func() { s.work.add(e) }
	e.machine.Freed.Fire = s.work.unpark
	e.machine.Ended.Fire = func() { go e.depart() }
	e.machine.Turn.Fire = e.wake
	e.seen = &lookout{role: report.Target, depth: s.cfg.Depth, began: time.Now(), state: isession.Login.String(), look: e.machine.Look, describe: e.describe}
	e.seen.connecting(e.local, e.remote)
	reportsOf(s.adapter).add(e.seen)
}

// allowed returns the LUNs that the initiator may use, in ascending order.
func (e *connection) allowed() (ids []uint64) {
	for id := range e.target.luns {
		if e.may(uint16(id >> 48)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// may reports whether the initiator may use a LUN.
func (e *connection) may(number uint16) bool {
	for i := range e.target.Access {
		r := &e.target.Access[i]
		if r.admits(e.key.initiator, e.remote.Addr(), e.user, false) && (len(r.LUNs) == 0 || slices.Contains(r.LUNs, number)) {
			return true
		}
	}
	return len(e.target.Access) == 0
}

// attach makes the nexus of a unit, unless another connection has made it.
func (e *session) attach(l *lun, name string, list func() []uint64) *flow.LUN {
	l.state.Lock()
	defer l.state.Unlock()
	e.attaching.Lock()
	defer e.attaching.Unlock()
	n := e.nexuses[l]
	if n == nil {
		n = l.unit.AttachAt(e.key.group, name, list)
		e.nexuses[l] = n
	}
	return &flow.LUN{Nexus: n}
}

// wake makes the machine step, if the connection is there.
func (e *connection) wake() {
	select {
	case <-e.ready:
		e.conn.Wake()
	default: // the first step comes
	}
}

// end ends all connections. It does not wait for the end.
func (e *session) end() {
	for _, c := range e.connections() {
		c.end()
	}
}

// end resets the connection. It does not wait for the end.
func (e *connection) end() {
	go func() {
		select {
		case <-e.ready:
			e.machine.End()
			e.conn.Wake()
		case <-e.gone:
		}
	}()
}

// depart cleans up when the machine has ended. The goroutine that takes the connection over
// speaks first: what it sets belongs to the last report of the session.
func (e *connection) depart() {
	select {
	case <-e.ready:
	case <-e.gone:
	}
	e.cleanup()
}

// cleanup gives back what the connection has, when it has ended.
func (e *connection) cleanup() {
	e.once.Do(func() {
		if e.seen != nil {
			e.seen.remove()
		}
		orderly := false
		if e.conn != nil {
			var why flow.Reason
			var cause error
			orderly, why, cause = e.machine.Over()
			e.server.cfg.Log.Info("session ended", "initiator", e.key.initiator, "from", e.remote, "cid", e.params.CID, "logout", orderly, "cause", cause, "reason", why)
		}
		if e.machine != nil {
			e.machine.Release()
			e.server.adapter.Board().Deliver()
		}
		if e.iser != nil {
			if err := e.iser.Close(); err != nil {
				e.server.cfg.Log.Warn("close a connection of iSER", "error", err)
			}
		}
		e.remove(!orderly && e.conn != nil)
		close(e.gone)
	})
}

// remove takes the connection out of its session. At error recovery level 0 a session does
// not survive the loss of a connection (RFC 7143 §7.1.4): the others end, and the initiator
// makes a new session. The session ends with its last connection.
func (e *connection) remove(lost bool) {
	s := e.server
	s.mu.Lock()
	e.lost = e.lost || lost && !e.parted
	e.ending = e.ending || e.conn != nil && !e.parted
	others := slices.DeleteFunc(slices.Clone(e.conns), func(c *connection) bool { return c == e })
	if len(others) != 0 {
		e.conns = others
	}
	ending, lost := e.ending, e.lost
	s.mu.Unlock()
	if len(others) != 0 {
		e.free()
		for _, c := range others {
			if ending {
				c.end()
			}
		}
		return
	}
	e.detach(lost)
	e.free()
	s.mu.Lock()
	delete(s.sessions, e.key)
	s.mu.Unlock()
	close(e.ended)
}

// parts takes note of the logout of another connection.
func (e *connection) parts(j *flow.Job) {
	cid, other := j.Parts()
	if !other {
		return
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	for _, c := range e.conns {
		c.parted = c.parted || c.params.CID == cid
	}
}

// logOut ends the connection, and the session if no other connection is left.
func (e *connection) logOut(j *flow.Job) {
	e.server.mu.Lock()
	e.parted = !j.ClosesSession() && len(e.conns) > 1
	whole := !e.parted
	e.server.mu.Unlock()
	if whole {
		e.detach(false)
	}
}

// detach makes the units forget the session, unless they have done so. lost says that the
// initiator has not logged out.
func (e *session) detach(lost bool) {
	e.attaching.Lock()
	again := e.detached
	e.detached = true
	e.attaching.Unlock()
	if again {
		return
	}
	for l, n := range e.nexuses {
		l.state.Lock()
		l.unit.Detach(n, lost)
		l.state.Unlock()
	}
}

// free gives the entries of the table back. Until then the adapter does not close.
func (e *connection) free() {
	if e.done == nil {
		return
	}
	defer e.done()
	table := e.server.adapter.Table()
	if e.tags != nil {
		e.tags.Release()
	}
	if e.pd != 0 {
		if err := table.FreePD(e.pd); err != nil {
			e.server.cfg.Log.Warn("free the protection domain of a session", "error", err)
		}
	}
}
