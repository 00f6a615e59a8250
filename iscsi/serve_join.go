package iscsi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// with returns the youngest connection with a CID, or nil. The caller has locked Server.mu.
func (e *session) with(cid uint16) *connection {
	for _, c := range slices.Backward(e.conns) {
		if c.params.CID == cid {
			return c
		}
	}
	return nil
}

// join makes the connection of a login one of the session that has its TSIH (RFC 7143
// §6.3.1). If the session has a connection with that CID, it is replaced: its commands end
// (RFC 7143 §6.3.4).
func (g *greeting) join(r *login.Request, p *login.Params) (uint16, pdu.LoginStatus) {
	e, old, status := g.enlist(r, p)
	if status != pdu.LoginSuccess {
		return 0, status
	}
	if old != nil {
		old.end()
		select {
		case <-old.gone:
		case <-g.ctx.Done():
			return 0, pdu.TargetError
		}
	}
	inherit(p, &e.agreed)
	p.CmdSN, p.MaxCmdSN = e.shared.Numbers()
	g.conn.params = *p
	return e.handle, pdu.LoginSuccess
}

// enlist adds the connection of a login to its session. old is the connection that it
// replaces, or nil.
func (g *greeting) enlist(r *login.Request, p *login.Params) (e *session, old *connection, _ pdu.LoginStatus) {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	e = s.sessions[g.key(r)]
	switch {
	case s.life.Err() != nil:
		return nil, nil, pdu.ServiceUnavailable
	case e == nil || e.handle != r.TSIH || e.ending:
		return nil, nil, pdu.SessionDoesNotExist
	case e.shared == nil:
		return nil, nil, pdu.TooManyConnections
	case g.iser || e.user != r.User:
		return nil, nil, pdu.CannotIncludeInSession
	}
	if old = e.with(r.CID); old == nil && len(e.conns) >= int(e.agreed.MaxConnections) {
		return nil, nil, pdu.TooManyConnections
	}
	if old != nil {
		old.parted = true
	}
	g.conn = e.add(g, p)
	return e, old, pdu.LoginSuccess
}

// inherit sets the parameters of a connection that belong to its session.
func inherit(p, session *login.Params) {
	own := *p
	*p = *session
	p.CID, p.StatSN, p.Digests, p.PeerUser = own.CID, own.StatSN, own.Digests, own.PeerUser
	p.MaxSendLength, p.MaxRecvLength = own.MaxSendLength, own.MaxRecvLength
}

// defaultConnections is how many connections a session may have at a target.
const defaultConnections = 4

// fillConnections sets how many connections a session may have. Error recovery level 1 and
// several connections exclude each other: no peer is known that has both.
func (c *ServerConfig) fillConnections() error {
	w := &c.Wishes
	switch {
	case w.MaxConnections > flow.MaxConnections:
		return fmt.Errorf("Wishes.MaxConnections is %d: choose 1 to %d", w.MaxConnections, flow.MaxConnections)
	case w.MaxConnections > 1 && w.ErrorRecoveryLevel != 0:
		return errors.New("Wishes: a target has either several connections in a session or error recovery level 1: set MaxConnections to 1, or ErrorRecoveryLevel to 0")
	case w.MaxConnections == 0 && w.ErrorRecoveryLevel == 0:
		w.MaxConnections = defaultConnections
	}
	return nil
}
