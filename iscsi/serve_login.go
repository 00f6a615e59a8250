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
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/seq"
)

// acceptAll accepts connections until the Server closes.
func (s *Server) acceptAll() {
	for {
		c, err := s.socket.AcceptTCP()
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
				s.greet(c)
			})
		default:
			s.cfg.Log.Warn("too many logins at once", "from", c.RemoteAddr())
			c.Close()
		}
	}
}

// greet brings a connection through the login.
func (s *Server) greet(c *net.TCPConn) {
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
	g := &greeting{server: s, local: local, remote: remote}
	last, err := g.negotiate(ctx, c)
	if err != nil {
		s.cfg.Log.Warn("login", "from", remote, "error", err)
		g.abandon()
		c.Close()
		return
	}
	stop()
	c.SetDeadline(time.Time{})
	if g.session == nil {
		s.running.Go(func() { s.discover(c, g, last) })
		return
	}
	g.session.takeOver(ctx, sock, last)
}

// negotiate runs the machine of the login. It returns the final response, which has not
// been sent.
func (g *greeting) negotiate(ctx context.Context, c *net.TCPConn) (last []byte, err error) {
	g.ctx = ctx
	var first [4]byte
	rand.Read(first[:])
	machine, err := login.NewTarget(login.TargetConfig{
		Registry: g, Wishes: g.server.cfg.Wishes, Window: uint32(g.server.cfg.Depth),
		StatSN: seq.Num(binary.BigEndian.Uint32(first[:])),
	})
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

// takeOver makes the session's machine the owner of the connection. The final Login
// Response leaves when the engine already keeps the initiator's segments.
func (e *session) takeOver(ctx context.Context, sock *adapter.Socket, last []byte) {
	err := e.prepare()
	if err == nil {
		e.conn, err = sock.TakeOver(ctx, e.machine, adapter.TakeOver{
			Kind: bpf.KindISCSI, Accepted: true,
			LastWords: func() error { _, err := sock.Write(last); return err },
		})
	} else {
		sock.Close()
	}
	if err != nil {
		e.server.cfg.Log.Warn("take-over", "initiator", e.key.initiator, "from", e.remote, "error", err)
		e.conn = nil
		e.cleanup()
		return
	}
	e.server.cfg.Log.Info("session", "initiator", e.key.initiator, "target", e.target.Name, "from", e.remote)
	close(e.ready)
	e.conn.Wake()
}
