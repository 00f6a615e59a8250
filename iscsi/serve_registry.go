package iscsi

import (
	"context"
	"crypto/rand"
	"net/netip"
	"slices"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// sessionKey identifies a session (RFC 7143 §4.4.3).
type sessionKey struct {
	initiator, target string
	isid              pdu.ISID
	group             uint16 // tag of the target portal group
}

// greeting is a login in progress. It implements login.Registry.
type greeting struct {
	server        *Server
	ctx           context.Context
	local, remote netip.AddrPort
	group         uint16 // of the portal; 0: that of the target
	params        login.Params
	conn          *connection // of a normal session, from Enter on
	asking        bool        // a discovery session that has a place in Server.asking
	iser          bool        // the connection is one of iSER
}

// Policy implements login.Registry.
func (g *greeting) Policy(r *login.Request) login.Policy {
	if r.Discovery {
		return login.Policy{}
	}
	t := g.server.targets[r.TargetName]
	if t == nil {
		return login.Policy{Status: pdu.TargetNotFound}
	}
	if !t.admits(r, g.remote.Addr(), true) {
		return login.Policy{Status: pdu.AuthorizationFailure}
	}
	p := login.Policy{PortalGroupTag: t.at(g.group), Alias: t.Alias}
	if len(t.Users) != 0 {
		p.CHAP = t.verifier()
	}
	return p
}

// admits reports whether a rule of the target holds for the initiator.
func (t *target) admits(r *login.Request, from netip.Addr, anyUser bool) bool {
	if len(t.Access) == 0 {
		return true
	}
	for i := range t.Access {
		if t.Access[i].admits(r.InitiatorName, from, r.User, anyUser) {
			return true
		}
	}
	return false
}

// verifier returns what the target needs for CHAP.
func (t *target) verifier() *login.Verifier {
	v := &login.Verifier{
		Secret: func(user string) (login.Secret, bool) {
			secret, known := t.Users[user]
			return login.Secret(secret), known
		},
	}
	if t.Secret != "" {
		v.User, v.OwnSecret = t.User, login.Secret(t.Secret)
	}
	rand.Read(v.Nonce[:])
	return v
}

// Existing implements login.Registry.
func (g *greeting) Existing(r *login.Request) login.Existing {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.sessions[g.key(r)]
	if e == nil || r.Discovery {
		return login.Existing{}
	}
	return login.Existing{
		Session: true, TSIH: e.handle, Connection: e.with(r.CID) != nil,
		Connections: len(e.conns), MaxConnections: int(e.agreed.MaxConnections),
	}
}

// key returns the key of the session that the initiator wants.
func (g *greeting) key(r *login.Request) sessionKey {
	k := sessionKey{r.InitiatorName, r.TargetName, r.ISID, g.group}
	if t := g.server.targets[r.TargetName]; t != nil {
		k.group = t.at(g.group)
	}
	return k
}

// at returns the tag of the portal group of a portal.
func (t *target) at(group uint16) uint16 {
	if group == 0 {
		return t.PortGroup
	}
	return group
}

// Enter implements login.Registry. A session with the same key ends first (RFC 7143
// §6.3.5).
func (g *greeting) Enter(r *login.Request, a login.Action, p *login.Params) (uint16, pdu.LoginStatus) {
	if r.Discovery {
		select {
		case g.server.asking <- struct{}{}:
			g.asking = true
			return 1, pdu.LoginSuccess
		default:
			return 0, pdu.OutOfResources
		}
	}
	s, t := g.server, g.server.targets[r.TargetName]
	if !t.admits(r, g.remote.Addr(), false) {
		return 0, pdu.AuthorizationFailure
	}
	if a == login.AddConnection || a == login.ReinstateConnection {
		return g.join(r, p)
	}
	g.buryOthers(r)
	for {
		old, status := g.enter(r, t, p)
		if old == nil {
			if status != pdu.LoginSuccess {
				return 0, status
			}
			return g.conn.handle, status
		}
		old.end()
		select {
		case <-old.ended:
		case <-g.ctx.Done():
			return 0, pdu.TargetError
		}
		if s.life.Err() != nil {
			return 0, pdu.ServiceUnavailable
		}
	}
}

// buryOthers ends the other sessions of the initiator if it has closed their connections
// without a logout. An initiator that comes back at once with another ISID must not find what
// its old session has left at a unit, such as a reservation.
func (g *greeting) buryOthers(r *login.Request) {
	for _, old := range g.server.sessionsOf(r.InitiatorName, r.TargetName) {
		if !old.deserted() {
			continue
		}
		old.end()
		select {
		case <-old.ended:
		case <-g.ctx.Done():
			return
		}
	}
}

// sessionsOf returns the sessions of an initiator with a target.
func (s *Server) sessionsOf(initiator, target string) (all []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.sessions {
		if k.initiator == initiator && k.target == target {
			all = append(all, e)
		}
	}
	return all
}

// deserted reports whether the initiator has closed a connection of the session.
func (e *session) deserted() bool {
	return slices.ContainsFunc(e.connections(), func(c *connection) bool {
		select {
		case <-c.ready:
			conn, ok := c.conn.(interface{ PeerClosed() bool })
			return ok && conn.PeerClosed()
		default:
			return false // the login is not over
		}
	})
}

// enter makes the session, or returns the one that is in its place.
func (g *greeting) enter(r *login.Request, t *target, p *login.Params) (old *session, _ pdu.LoginStatus) {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	key := g.key(r)
	if old = s.sessions[key]; old != nil {
		return old, pdu.LoginSuccess
	}
	if s.life.Err() != nil {
		return nil, pdu.ServiceUnavailable
	}
	if len(s.sessions) >= s.cfg.MaxSessions {
		return nil, pdu.OutOfResources
	}
	if s.handle++; s.handle == 0 {
		s.handle = 1
	}
	e := newSession(g, key, t, s.handle, p, r.User)
	g.conn = e.add(g, p)
	s.sessions[key] = e
	return nil, pdu.LoginSuccess
}

// abandon forgets the session of a login that has failed.
func (g *greeting) abandon() {
	if g.conn != nil {
		g.conn.cleanup()
	}
	if g.asking {
		<-g.server.asking
	}
}
