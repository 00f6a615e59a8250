package iscsi

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/tpt"
)

// session is a normal session. It has one connection.
type session struct {
	server        *Server
	key           sessionKey
	target        *target
	handle        uint16
	user          string
	params        login.Params
	local, remote netip.AddrPort

	ready chan struct{} // closed when conn is set
	ended chan struct{} // closed when nothing is left of the session
	once  sync.Once

	done    func() // ends the use of the adapter's table
	machine *flow.Target
	conn    *adapter.Conn
	pd      tpt.PD
	tags    *tpt.Tags
	nexuses map[*lun]*unit.Nexus

	detached bool // the units have forgotten the session
}

func newSession(g *greeting, key sessionKey, t *target, handle uint16, p login.Params, user string) *session {
	return &session{
		server: g.server, key: key, target: t, handle: handle, params: p, user: user, local: g.local, remote: g.remote,
		ready: make(chan struct{}), ended: make(chan struct{}), nexuses: map[*lun]*unit.Nexus{},
	}
}

// spareSlots is how many slots a session has for immediate requests.
const spareSlots = 16

// prepare makes the machine of the session.
func (e *session) prepare() error {
	s := e.server
	e.params.TSIH = e.handle
	var err error
	if e.done, err = s.adapter.Use(); err != nil {
		return err
	}
	table := s.adapter.Table()
	if e.pd, err = table.NewPD(); err != nil {
		return err
	}
	if e.tags, err = table.ReserveTags(e.pd, s.cfg.Depth+spareSlots); err != nil {
		return err
	}
	name := fmt.Sprintf("%s,i,0x%x", e.key.initiator, e.key.isid[:])
	allowed := e.allowed()
	list := func() []uint64 { return allowed }
	luns := map[uint64]*flow.LUN{}
	for _, id := range allowed {
		luns[id] = e.attach(e.target.luns[id], name, list)
	}
	e.machine = flow.NewTarget(flow.TargetConfig{
		Params: e.params, Tags: e.tags, Window: s.cfg.Depth, Board: s.adapter.Board(), Pool: s.pool,
		Ping: s.cfg.Ping,
		LUNs: luns, Absent: e.attach(e.target.absent, name, list),
	})
	e.machine.Work.Fire = func() { s.work.add(e) }
	e.machine.Ended.Fire = func() { go e.cleanup() }
	return nil
}

// allowed returns the LUNs that the initiator may use, in ascending order.
func (e *session) allowed() (ids []uint64) {
	for id := range e.target.luns {
		if e.may(uint16(id >> 48)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// may reports whether the initiator may use a LUN.
func (e *session) may(number uint16) bool {
	for i := range e.target.Access {
		r := &e.target.Access[i]
		if r.admits(e.key.initiator, e.remote.Addr(), e.user, false) && (len(r.LUNs) == 0 || slices.Contains(r.LUNs, number)) {
			return true
		}
	}
	return len(e.target.Access) == 0
}

// attach makes the nexus of a unit.
func (e *session) attach(l *lun, name string, list func() []uint64) *flow.LUN {
	l.state.Lock()
	defer l.state.Unlock()
	n := l.unit.Attach(name, list)
	e.nexuses[l] = n
	return &flow.LUN{Nexus: n}
}

// end resets the connection. It does not wait for the end.
func (e *session) end() {
	go func() {
		select {
		case <-e.ready:
			e.machine.End()
			e.conn.Wake()
		case <-e.ended:
		}
	}()
}

// cleanup gives back what the session has, when its connection has ended.
func (e *session) cleanup() {
	e.once.Do(func() {
		orderly := false
		if e.conn != nil {
			var why flow.Reason
			var cause error
			orderly, why, cause = e.machine.Over()
			e.server.cfg.Log.Info("session ended", "initiator", e.key.initiator, "from", e.remote, "logout", orderly, "cause", cause, "reason", why)
			e.machine.Release()
		}
		e.detach(!orderly && e.conn != nil)
		e.free()
		e.server.mu.Lock()
		delete(e.server.sessions, e.key)
		e.server.mu.Unlock()
		close(e.ended)
	})
}

// detach makes the units forget the session, unless they have done so. lost says that the
// initiator has not logged out. Jobs and cleanup, which follows them, call detach one after
// the other.
func (e *session) detach(lost bool) {
	if e.detached {
		return
	}
	e.detached = true
	for l, n := range e.nexuses {
		l.state.Lock()
		l.unit.Detach(n, lost)
		l.state.Unlock()
	}
}

// free gives the entries of the table back. Until then the adapter does not close.
func (e *session) free() {
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
