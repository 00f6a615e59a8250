package iscsi

import (
	"context"
	"crypto/rand"
	"net/netip"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// sessionKey identifies a session (RFC 7143 §4.4.3).
type sessionKey struct {
	initiator, target string
	isid              pdu.ISID
}

// greeting is a login in progress. It implements login.Registry.
type greeting struct {
	server        *Server
	ctx           context.Context
	local, remote netip.AddrPort
	params        login.Params
	session       *session // of a normal session, from Enter on
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
	p := login.Policy{PortalGroupTag: t.PortGroup, Alias: t.Alias}
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
	e := s.sessions[keyOf(r)]
	if e == nil || r.Discovery {
		return login.Existing{}
	}
	return login.Existing{Session: true, TSIH: e.handle, Connection: e.params.CID == r.CID, Connections: 1, MaxConnections: 1}
}

func keyOf(r *login.Request) sessionKey { return sessionKey{r.InitiatorName, r.TargetName, r.ISID} }

// Enter implements login.Registry. A session with the same key ends first (RFC 7143
// §6.3.5).
func (g *greeting) Enter(r *login.Request, a login.Action, p *login.Params) (uint16, pdu.LoginStatus) {
	if r.Discovery {
		return 1, pdu.LoginSuccess
	}
	s, t := g.server, g.server.targets[r.TargetName]
	if !t.admits(r, g.remote.Addr(), false) {
		return 0, pdu.AuthorizationFailure
	}
	if a != login.NewSession && a != login.ReinstateSession {
		return 0, pdu.TooManyConnections
	}
	for {
		old, status := g.enter(r, t, p)
		if old == nil {
			if status != pdu.LoginSuccess {
				return 0, status
			}
			return g.session.handle, status
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

// enter makes the session, or returns the one that is in its place.
func (g *greeting) enter(r *login.Request, t *target, p *login.Params) (old *session, _ pdu.LoginStatus) {
	s := g.server
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(r)
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
	g.session = newSession(g, key, t, s.handle, *p, r.User)
	s.sessions[key] = g.session
	return nil, pdu.LoginSuccess
}

// abandon forgets the session of a login that has failed.
func (g *greeting) abandon() {
	if g.session != nil {
		g.session.cleanup()
	}
}
