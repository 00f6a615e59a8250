package iscsi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/offload/clock"
)

// recovery is the part of a Session that outlives its connections. It belongs to the
// session's goroutine. While a connection is up, commands go straight to the flow. When the
// connection ends, the machine decides about the commands that have no status.
type recovery struct {
	machine *isession.Session
	epoch   uint64 // changes with each connection and each attempt; older answers are void
	ctx     context.Context
	cancel  context.CancelFunc // ends what belongs to the epoch
	linked  bool               // the flow has a connection, or is getting one
	held    bool               // the flow holds commands back
	leaving bool               // the program closes the session
	over    bool               // the session has ended

	kept map[uint64]*isession.Command // the commands that the machine has, by ID
}

// init makes the machine of a session whose first login is done.
func (r *recovery) init(s *Session, p login.Params) {
	r.kept = make(map[uint64]*isession.Command)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	limit := s.cfg.RecoveryTimeout
	if limit < 0 {
		limit = 1
	}
	r.machine = isession.New(isession.Config{Ping: s.cfg.Ping, PingTimeout: s.cfg.Ping, RecoveryTimeout: limit, Connections: len(s.conns)}, mover{s}, owner{s})
	r.linked = true
	now := clock.Now()
	r.machine.Open(now) // Connect finds the connection
	r.machine.Connected(now, p)
}

// question is a call for the session's goroutine.
type question struct {
	run  func(now clock.Instant)
	done chan struct{} // closed behind run
}

// tell runs f on the session's goroutine, and waits for that. It returns false if the
// session has ended.
func (s *Session) tell(f func(now clock.Instant)) bool {
	q := question{f, make(chan struct{})}
	select {
	case s.asked <- q:
		<-q.done
		return true
	case <-s.done:
		return false
	}
}

// tellIn is tell for an answer that is void unless the epoch lasts.
func (s *Session) tellIn(epoch uint64, f func(now clock.Instant)) (valid bool) {
	return s.tell(func(now clock.Instant) {
		if valid = s.epoch == epoch; valid {
			f(now)
		}
	}) && valid
}

// broken tells the machine that the connection, or the attempt to make one, has failed.
func (s *Session) broken(now clock.Instant, cause error) {
	if state, _ := s.machine.State(); state == isession.Login {
		s.drop()
		s.machine.Failed(now, cause)
		return
	}
	s.machine.Broken(now, cause)
}

// drop ends what belongs to the epoch. When it returns, no step of the connection runs.
func (s *Session) drop() {
	s.epoch++
	s.cancel()
	if !s.linked {
		return
	}
	s.hangUp()
	s.linked = false
	for _, c := range s.conns {
		c.aborts = nil
		c.seen.lost()
	}
	s.settle()
}

// settle makes the flow complete what needs no connection, or wakes the connection.
func (s *Session) settle() {
	if s.linked {
		s.wake()
		return
	}
	now := clock.Now()
	for _, c := range s.conns {
		c.flow.Settle(now)
	}
	s.device.Board().Deliver()
}

// wake wakes the connection, and the session's goroutine, which works for the connection
// while there is none.
func (s *Session) wake() {
	s.link().Wake()
	s.wakeWatcher()
}

// adopt hands the commands without status to the machine.
func (s *Session) adopt() {
	if state, _ := s.machine.State(); state != isession.Up {
		return
	}
	var all []orphan
	for _, c := range s.conns {
		if c.flow.Finished() != 0 {
			s.machine.Ponged()
		}
		for _, k := range c.flow.Kept() {
			all = append(all, orphan{c, k})
		}
	}
	slices.SortFunc(all, func(a, b orphan) int { return int(int32(a.CmdSN - b.CmdSN)) })
	for i := range all {
		c := s.command(&all[i])
		s.kept[c.ID] = c
		s.machine.Adopt(c, all[i].Replays)
	}
}

// orphan is a command that has lost its connection.
type orphan struct {
	conn *sessionConn
	flow.Kept
}

// idOf returns the ID of a command for the machine, and slotOf finds the command.
func (o *orphan) idOf() uint64 { return uint64(o.conn.cid)<<32 | uint64(o.Slot) }

func (s *Session) slotOf(id uint64) (c *sessionConn, slot int) {
	return s.conns[id>>32], int(uint32(id))
}

// command returns a command that has lost its connection. After the next login verify makes
// sure that the units of the session's disks are the same. Of any other unit nobody knows,
// so commands for its medium are not sent again.
func (s *Session) command(k *orphan) *isession.Command {
	c := &isession.Command{ID: k.idOf(), LUN: k.LUN, CDB: k.CDB}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.disks, func(d *Disk) bool { return uint64(scsi.LUNOf(d.lun)) == k.LUN })
	if i < 0 {
		c.Once = forMedium(&c.CDB)
	} else {
		c.Ended = endsSessions(s.disks[i].identity.Vendor)
	}
	return c
}

// forMedium reports whether a command reads or writes blocks of its unit.
func forMedium(c *scsi.CDB) bool {
	const unmap = 0x42
	_, _, blocks := c.Extent()
	return blocks || c[0] == unmap
}

// endsSessions reports whether the targets of a vendor are known to do what RFC 7143 §6.3.5
// demands: they end a session, with all its commands, before they answer the login that
// reinstates the session. tgtd does not, and may execute writes of the old connection behind
// their repetition. The reset of the unit that keeps tgtd from that also ends commands of
// other initiators, so only units that may need it get it.
func endsSessions(vendor string) bool {
	switch strings.TrimSpace(vendor) {
	case "STAG", "LIO-ORG":
		return true
	}
	return false
}

// release gives a command back to the flow.
func (s *Session) release(c *isession.Command, why flow.Reason) {
	delete(s.kept, c.ID)
	conn, slot := s.slotOf(c.ID)
	conn.flow.Release(slot, why)
	s.settle()
}

// mover is a Session as its machine sees it below.
type mover struct{ s *Session }

// Connect implements session.Mover.
func (m mover) Connect() {
	s := m.s
	if s.linked { // the first connection is there already
		return
	}
	s.epoch++
	s.ctx, s.cancel = context.WithCancel(context.Background())
	ctx, epoch := s.ctx, s.epoch
	s.device.Go(func() { s.attempt(ctx, epoch) })
}

// Drop implements session.Mover.
func (m mover) Drop() {
	m.s.drop()
	m.s.adopt()
}

// Send implements session.Mover.
func (m mover) Send(c *isession.Command, _ cmdSN) { m.s.release(c, flow.OK) }

// Revoke implements session.Mover. All commands of the machine are those of an ended
// connection, whose buffers nothing can access.
func (m mover) Revoke(*isession.Command) {}

// Manage implements session.Mover. The unit attentions that a reset leaves are taken
// before a command of the program meets them.
func (m mover) Manage(f pdu.Function, lun uint64, _ *isession.Command, _, _ cmdSN) {
	var h pdu.Header
	h.Reset(pdu.OpTask)
	h.SetImmediate(true)
	h.SetFunction(f)
	h.SetLUN(lun)
	h.SetReferencedTaskTag(pdu.NoTag)
	s := m.s
	s.request(s.lead(), &h, func(ctx context.Context) { s.drain(ctx, lun) }, func(now clock.Instant, h *pdu.Header) {
		s.machine.Managed(now, h.Response())
	})
}

// Ping implements session.Mover: it pings over all connections.
func (m mover) Ping(cmdSN) {
	for _, c := range m.s.conns {
		m.nop(c, 0)
	}
}

// Acknowledge implements session.Mover.
func (m mover) Acknowledge(lun uint64, _ cmdSN) { m.nop(m.s.lead(), lun) }

func (m mover) nop(c *sessionConn, lun uint64) {
	var h pdu.Header
	h.Reset(pdu.OpNOPOut)
	h.SetImmediate(true)
	h.SetFlags(pdu.Final)
	h.SetLUN(lun)
	h.SetTargetTransferTag(pdu.NoTag)
	m.s.request(c, &h, nil, func(clock.Instant, *pdu.Header) { m.s.machine.Ponged() })
}

// Fill implements session.Mover. The flow numbers the commands, so no number is left.
func (m mover) Fill(cmdSN) {}

// Logout implements session.Mover. If the program closes the session, this end then closes
// the connection in order.
func (m mover) Logout(cmdSN) {
	var h pdu.Header
	h.Reset(pdu.OpLogout)
	h.SetImmediate(true)
	h.SetLogoutReason(pdu.CloseSession)
	s := m.s
	var between func(context.Context)
	if s.leaving {
		between = s.part
	}
	s.request(s.lead(), &h, between, func(now clock.Instant, h *pdu.Header) {
		s.machine.LoggedOut(now, time.Duration(h.Time2Wait())*time.Second)
	})
}

// partTime limits how long this end waits for the target to close the connection.
const partTime = time.Second

// firstTime is how long a target of iSER may take to close the connection after its Logout
// Response. LIO over siw (Linux 6.1) does not survive an end of the connection that comes
// before its Send is complete: the Send fails, and later a thread waits for a lock for ever.
const firstTime = 200 * time.Millisecond

// part closes the connection in order, and waits until it has ended.
func (s *Session) part(ctx context.Context) {
	if s.url.ISER {
		select {
		case <-ctx.Done():
		case <-time.After(firstTime):
		}
	}
	for _, c := range s.conns {
		c.flow.Close()
	}
	s.wake()
	select {
	case <-ctx.Done():
	case <-time.After(partTime):
	}
}

// request sends a request over a present connection, and runs then with the answer on the
// session's goroutine. between, if set, runs before on a goroutine of its own. Nothing runs
// if the connection ends before.
func (s *Session) request(c *sessionConn, h *pdu.Header, between func(context.Context), then func(now clock.Instant, h *pdu.Header)) {
	epoch, ctx := s.epoch, s.ctx
	s.device.Go(func() {
		got, err := c.manage.do(ctx, flow.Command{Request: h})
		if errors.Is(err, flow.Rejected) { // also an answer
			got.Header.SetResponse(pdu.FunctionRejected)
			err = nil
		}
		if err != nil {
			return
		}
		if between != nil {
			between(ctx)
		}
		s.tellIn(epoch, func(now clock.Instant) { then(now, &got.Header) })
	})
}
