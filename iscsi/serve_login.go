package iscsi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/iscsi/login"
	isession "github.com/stag-rdma/stag/iscsi/session"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/seq"
)

// acceptAll accepts connections at a portal until the Server closes.
func (s *Server) acceptAll(p *entrance) {
	for {
		c, err := p.socket.AcceptTCP()
		if err != nil {
			if s.life.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.cfg.Log.Warn("accept a connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond): // most errors are a lack of descriptors
			case <-s.life.Done():
			}
			continue
		}
		select {
		case s.logins <- struct{}{}:
			s.running.Go(func() {
				defer func() { <-s.logins }()
				s.greet(c, p.group)
			})
		default:
			s.cfg.Log.Warn("too many logins at once", "from", c.RemoteAddr())
			c.Close()
		}
	}
}

// greet brings a connection through the login. group is that of the portal.
func (s *Server) greet(c *net.TCPConn, group uint16) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.LoginTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	sock, err := s.adapter.Socket(ctx, c)
	if err != nil {
		s.cfg.Log.Warn("connection", "from", c.RemoteAddr(), "error", err)
		c.Close()
		return
	}
	local, remote := sock.Ends()
	g := &greeting{server: s, local: local, remote: remote, group: group}
	last, err := g.negotiate(ctx, c)
	if err != nil {
		s.cfg.Log.Warn("login", "from", remote, "error", err)
		g.abandon()
		c.Close()
		return
	}
	stop()
	c.SetDeadline(time.Time{})
	if g.conn == nil {
		s.running.Go(func() { s.discover(c, g, last) })
		return
	}
	g.conn.takeOver(ctx, sock, last)
}

// negotiate runs the machine of the login. It returns the final response, which has not
// been sent.
func (g *greeting) negotiate(ctx context.Context, c *net.TCPConn) (last []byte, err error) {
	machine, err := g.machine(ctx, g.server.cfg.Wishes)
	if err != nil {
		return nil, err
	}
	var in login.Inbox
	for {
		if err := receive(c, &in); err != nil {
			return nil, err
		}
		out, done, err := machine.Step(in.Header(), in.Data(), nil)
		if done {
			g.params = machine.Params()
			return out, nil
		}
		if len(out) != 0 {
			if _, werr := c.Write(out); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if err != nil {
			return nil, err
		}
		in.Reset()
	}
}

// machine makes the machine of the login.
func (g *greeting) machine(ctx context.Context, w login.Wishes) (*login.Target, error) {
	g.ctx = ctx
	var first [4]byte
	rand.Read(first[:])
	return login.NewTarget(login.TargetConfig{
		Registry: g, Wishes: w, Window: uint32(g.server.cfg.Depth), StatSN: seq.Num(binary.BigEndian.Uint32(first[:])),
	})
}

// receive reads one PDU.
func receive(c *net.TCPConn, in *login.Inbox) error {
	for whole := false; !whole; {
		n, err := c.Read(in.Want())
		if err != nil {
			return err
		}
		if whole, err = in.Got(n); err != nil {
			return err
		}
	}
	return nil
}

// takeOver makes the machine the owner of the connection. The final Login
// Response leaves when the engine already keeps the initiator's segments.
func (e *connection) takeOver(ctx context.Context, sock *adapter.Socket, last []byte) {
	err := e.prepare()
	if err == nil {
		var c *adapter.Conn
		c, err = sock.TakeOver(ctx, e.machine.Stream(), adapter.TakeOver{
			Kind: bpf.KindISCSI, Accepted: true,
			LastWords: func() error { _, err := sock.Write(last); return err },
		})
		if err == nil {
			e.conn = c
		}
	} else {
		sock.Close()
	}
	if err != nil {
		e.server.cfg.Log.Warn("take-over", "initiator", e.key.initiator, "from", e.remote, "error", err)
		e.cleanup()
		return
	}
	e.announce()
}

// announce tells everybody of the connection.
func (e *connection) announce() {
	e.server.cfg.Log.Info("session", "initiator", e.key.initiator, "target", e.target.Name, "cid", e.params.CID, "from", e.remote, "iser", e.iser != nil)
	e.seen.linked(e.conn, false)
	e.seen.tell(isession.Up.String(), nil)
	close(e.ready)
	e.conn.Wake()
}
