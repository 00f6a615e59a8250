package ping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// server answers pings.
type server struct {
	o       Options
	adapter *rdma.Adapter
	clients sync.WaitGroup

	mu     sync.Mutex
	result Result
	began  time.Time // time of the first connection
}

// Server answers one client. With Persistent it answers all clients until ctx ends. The
// Result is valid even if there is an error.
func Server(ctx context.Context, o Options) (Result, error) {
	o.Data, o.Debug, o.Log = shared(o.Data), shared(o.Debug), shared(o.Log)
	s := &server{o: o}
	s.result = Result{Role: roleServer, Address: o.address(), Size: o.Size, Validated: o.Validate}
	var err error
	if s.adapter, err = o.open(); err == nil {
		s.result.Fields = carrier.Of(s.adapter)
		err = errors.Join(s.run(ctx), s.adapter.Close())
	}
	if !s.began.IsZero() {
		s.result.Seconds = time.Since(s.began).Seconds()
	}
	return s.result, s.result.finish(ctx, err)
}

func (s *server) run(ctx context.Context) error {
	l, err := s.adapter.Listen(ctx, s.o.address(), rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	s.result.Address = l.Addr().String()
	if _, err := fmt.Fprintf(s.o.Log, "listening on %v\n", l.Addr()); err != nil {
		return err
	}
	if s.o.Persistent {
		return s.all(ctx, l)
	}
	req, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	l.Close() // a further client is refused at once
	return s.serve(ctx, req)
}

// all serves every client. It reports a client that fails, and continues.
func (s *server) all(ctx context.Context, l *rdma.Listener) error {
	defer s.clients.Wait()
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		s.clients.Go(func() {
			if err := s.serve(ctx, req); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.o.Log, "%v\n", err)
			}
		})
	}
}

// serve serves one client until its connection ends. The error names the client.
func (s *server) serve(ctx context.Context, req *rdma.ConnRequest) error {
	peer := req.Peer().Remote
	err := s.converse(ctx, req)
	// A connection that an interrupt ended has not failed.
	if err != nil && ctx.Err() == nil {
		s.mu.Lock()
		s.result.Failed++
		s.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("client %v: %w", peer, err)
	}
	return nil
}

func (s *server) converse(ctx context.Context, req *rdma.ConnRequest) (err error) {
	c, err := newCaller(s.adapter, s.o)
	if err != nil {
		return errors.Join(err, req.Reject(nil))
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := req.Accept(ctx, c.qp, s.o.params()); err != nil {
		return errors.Join(err, req.Close())
	}
	s.met(c.qp.Conn())
	c.step("connected with %v: %s", c.qp.Conn().Remote, c.qp.Conn().Path)
	return c.answers(ctx, s.done)
}

// met counts a connection, and records its path.
func (s *server) met(conn rdma.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.result.Path = conn.Path
	s.result.Clients++
}

// done counts a ping.
func (s *server) done(octets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Pings++
	s.result.Octets += uint64(octets)
}

// lines is a writer that several goroutines may use at the same time.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func shared(w io.Writer) io.Writer {
	if w == nil {
		return nil
	}
	return &lines{w: w}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
