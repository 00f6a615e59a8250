package nbd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/stag-rdma/stag/iscsi/block"
)

// Config is the configuration of a Server.
type Config struct {
	Volume block.Volume
	Name   string // of the export; "": clients name no export

	Connections int // most connections at a time; 0 means 16
	Depth       int // requests of one connection that are in progress; 0 means 64
	Memory      int // octets of the data of one connection's requests; 0 means 64 MiB

	HandshakeTimeout time.Duration // 0 means 10 s
	Log              *slog.Logger  // nil: no log
}

const (
	defaultConnections = 16
	defaultDepth       = 64
	defaultMemory      = 64 << 20
	defaultHandshake   = 10 * time.Second
)

func (c Config) fill() (Config, error) {
	set := func(n *int, usual int) {
		if *n == 0 {
			*n = usual
		}
	}
	set(&c.Connections, defaultConnections)
	set(&c.Depth, defaultDepth)
	set(&c.Memory, defaultMemory)
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = defaultHandshake
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Connections < 0 || c.Depth < 0 || c.Memory < MaxPayload || len(c.Name) > MaxName {
		return c, fmt.Errorf("nbd: connections %d, depth %d, memory %d, a name of %d octets: memory is at least %d, and a name has at most %d octets",
			c.Connections, c.Depth, c.Memory, len(c.Name), MaxPayload, MaxName)
	}
	return c, nil
}

// Server is an NBD export. A Server is safe for concurrent use.
type Server struct {
	cfg   Config
	shape block.Shape
	ctx   context.Context // ends with the server
	end   context.CancelCauseFunc

	listener net.Listener
	room     chan struct{} // has an element for each connection
	running  sync.WaitGroup
}

// ErrServerClosed is the cause with which the connections of a Server end.
var ErrServerClosed = errors.New("nbd: the server is closed")

// Serve makes a volume available to the clients of a listener. The caller must close the
// Server, which closes the listener.
func Serve(l net.Listener, c Config) (*Server, error) {
	c, err := c.fill()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: c, shape: c.Volume.Shape(), listener: l, room: make(chan struct{}, c.Connections)}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.running.Go(s.accept)
	return s, nil
}

// acceptPause is the time after an Accept that failed, for instance for want of descriptors.
const acceptPause = 100 * time.Millisecond

// accept serves clients. A client more than there may be waits in the listener's backlog.
func (s *Server) accept() {
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		conn, err := s.listener.Accept()
		switch {
		case err == nil:
			s.running.Go(func() {
				s.serve(conn)
				<-s.room
			})
			continue
		case s.ctx.Err() != nil:
			return
		}
		<-s.room
		s.cfg.Log.Warn("nbd: accept", "err", err)
		select {
		case <-time.After(acceptPause):
		case <-s.ctx.Done():
		}
	}
}

// serve serves a client until it leaves.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(s.ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	conn.SetDeadline(time.Now().Add(s.cfg.HandshakeTimeout))
	h := handshake{conn: conn, name: s.cfg.Name, shape: &s.shape}
	transmits, err := h.run()
	if err == nil && transmits {
		err = conn.SetDeadline(time.Time{})
		if err == nil && s.ctx.Err() == nil {
			err = transmit(s.ctx, conn, s.cfg.Volume, &s.shape, s.cfg.Depth, s.cfg.Memory)
		}
	}
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Warn("nbd: a client's connection ends", "err", err)
	}
}

// Close ends the connections, and closes the listener. Requests in progress are canceled.
// Close may be called twice.
func (s *Server) Close() error {
	s.end(ErrServerClosed)
	err := s.listener.Close()
	s.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
