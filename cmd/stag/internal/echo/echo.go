// Package echo implements `stag echo`: the echo service of RFC 862 over TCP. Every peer that
// speaks TCP can use it, such as nc. The process can be upgraded: its connections and its
// listening socket continue in a new process.
package echo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// DefaultPort is the port of RFC 862.
const DefaultPort = 7

// Options are the options of an echo server.
type Options struct {
	Interfaces []string // interfaces whose connections are taken over
	Generic    bool     // take connections over in generic mode
	Address    string   // address to listen at; "": all addresses
	Port       int

	Log     io.Writer    // gets a line with the server's address, and a line for each connection that fails
	Adapter *slog.Logger // log of the adapter; nil: no log
}

// Result describes a run, also a run that failed. After an upgrade the successor counts on.
type Result struct {
	Address     string  `json:"address"`
	Connections uint64  `json:"connections"` // connections that were taken over
	Octets      uint64  `json:"octets"`      // octets that were sent back
	Failed      uint64  `json:"failed"`      // connections that could not be taken over, or ended with an error
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted"`
	Successor   int     `json:"successor,omitempty"` // process that continues
	Error       string  `json:"error,omitempty"`
}

// objectKind is the kind of the object with the listening socket and the counts.
const objectKind = "stag.echo/1"

// server is a running server.
type server struct {
	o       Options
	adapter *adapter.Adapter
	ready   chan struct{} // channel that is closed when adapter and l are set
	l       *net.TCPListener
	began   time.Time

	taking sync.WaitGroup // take-overs in progress
	pause  sync.RWMutex   // lock that is held for writing while no connection may be accepted
	left   chan int       // gets the pid of the successor when everything has been handed over
	ending atomic.Bool    // the connections end with the server, or continue in the successor

	upgrading sync.Mutex // lock that is held during an upgrade; it guards handed
	handed    *os.File   // duplicate of the listening socket for the successor

	mu     sync.Mutex // guards the fields below
	open   map[*octets.Echo]struct{}
	result Result
}

// Serve serves until ctx ends, or until the process has been upgraded. It continues the
// connections of the process that has started this one for an upgrade.
func Serve(ctx context.Context, o Options) (Result, error) {
	s := &server{o: o, ready: make(chan struct{}), left: make(chan int, 1), open: map[*octets.Echo]struct{}{}, began: time.Now()}
	err := s.start(ctx)
	if err == nil {
		close(s.ready)
		if _, err = fmt.Fprintf(o.Log, "listening on %v\n", s.adapter.ListenerAddr(s.l)); err == nil {
			err = s.run(ctx)
		}
		s.ending.Store(true)
		err = errors.Join(err, s.l.Close(), s.adapter.Close())
	}
	return s.finish(ctx, err)
}

func (s *server) finish(ctx context.Context, err error) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	for e := range s.open {
		r.Octets += e.Echoed()
	}
	r.Seconds = time.Since(s.began).Seconds()
	r.Interrupted = ctx.Err() != nil && r.Successor == 0
	if err != nil {
		r.Error = err.Error()
	}
	return *r, err
}

// start opens the adapter and the listening socket, or continues those of a predecessor.
func (s *server) start(ctx context.Context) error {
	cfg := adapter.Config{Ports: s.o.Interfaces, Generic: s.o.Generic, Log: s.o.Adapter, Upgrade: s.upgrade}
	from, err := upgrade.Predecessor(ctx)
	if err != nil {
		return err
	}
	if from != nil {
		return s.succeed(ctx, from, cfg)
	}
	if s.adapter, err = adapter.Open(cfg); err != nil {
		return err
	}
	if s.l, err = s.adapter.Listen(ctx, s.address(), adapter.TOS(0)); err != nil {
		return errors.Join(err, s.adapter.Close())
	}
	s.result.Address = s.l.Addr().String()
	return nil
}

func (s *server) address() string { return net.JoinHostPort(s.o.Address, strconv.Itoa(s.o.Port)) }

// succeed continues what the predecessor has.
func (s *server) succeed(ctx context.Context, from *net.UnixConn, cfg adapter.Config) error {
	a, lost, err := adapter.Succeed(ctx, from, cfg, adapter.Succession{
		ImportULP: func(_ engine.FlowID, o portable.Object) (stream.ULP, error) { return octets.Import(o) },
		Installed: func(u stream.ULP, _ *adapter.Conn) {
			if e, ok := u.(*octets.Echo); ok {
				s.watch(e)
			}
		},
		Objects: s.importObjects,
	})
	if err != nil {
		if s.l != nil {
			s.l.Close()
		}
		return err
	}
	s.adapter = a
	for _, err := range lost {
		s.failed(err)
	}
	return nil
}

// importObjects takes the listening socket and the counts over.
func (s *server) importObjects(list []portable.Object) error {
	if len(list) != 1 || list[0].Kind != objectKind || len(list[0].Files) != 1 {
		return fmt.Errorf("%w: the other process is no stag echo of this version", portable.ErrKind)
	}
	f := list[0].Files[0]
	defer f.Close()
	if err := json.Unmarshal(list[0].Data, &s.result); err != nil {
		return fmt.Errorf("%s: %w", objectKind, err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	var ok bool
	if s.l, ok = l.(*net.TCPListener); !ok {
		return errors.Join(fmt.Errorf("%s: the descriptor is no TCP socket", objectKind), l.Close())
	}
	return nil
}

// run accepts connections until ctx ends or the successor has everything.
func (s *server) run(ctx context.Context) error {
	accepted := make(chan error, 1)
	go func() { accepted <- s.accept(ctx) }()
	var err error
	select {
	case <-ctx.Done():
	case pid := <-s.left:
		s.mu.Lock()
		s.result.Successor = pid
		s.mu.Unlock()
	case err = <-accepted:
		return err
	}
	s.ending.Store(true)
	s.l.SetDeadline(time.Unix(1, 0))
	<-accepted
	return nil
}

func (s *server) accept(ctx context.Context) error {
	for !s.ending.Load() {
		if err := s.acceptOne(ctx); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return nil
}

// acceptOne accepts a connection. During an upgrade it waits. After an upgrade the connections
// are the successor's.
func (s *server) acceptOne(ctx context.Context) error {
	s.pause.RLock()
	defer s.pause.RUnlock()
	if s.ending.Load() {
		return nil
	}
	c, err := s.l.AcceptTCP()
	if err != nil {
		return err
	}
	s.taking.Go(func() {
		if err := s.take(ctx, c); err != nil && ctx.Err() == nil {
			s.failed(err)
		}
	})
	return nil
}

func (s *server) take(ctx context.Context, c *net.TCPConn) error {
	socket, err := s.adapter.Socket(ctx, c)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	_, remote := socket.Ends()
	e := octets.NewEcho()
	conn, err := socket.TakeOver(ctx, e, adapter.TakeOver{Kind: bpf.KindBytes, Accepted: true})
	if err != nil {
		return fmt.Errorf("%v: %w", remote, err)
	}
	s.mu.Lock()
	s.result.Connections++
	s.mu.Unlock()
	s.watch(e)
	conn.Wake()
	return nil
}

// watch counts a connection until its end.
func (s *server) watch(e *octets.Echo) {
	s.mu.Lock()
	s.open[e] = struct{}{}
	s.mu.Unlock()
	go func() {
		<-e.Done()
		if errors.Is(e.Err(), portable.ErrUpgraded) || s.ending.Load() {
			return // the successor counts it, or finish does
		}
		s.mu.Lock()
		delete(s.open, e)
		s.result.Octets += e.Echoed()
		s.mu.Unlock()
		if err := e.Err(); err != nil {
			s.failed(err)
		}
	}()
}

func (s *server) failed(err error) {
	s.mu.Lock()
	s.result.Failed++
	s.mu.Unlock()
	fmt.Fprintf(s.o.Log, "%v\n", err)
}

// upgrade starts the successor and hands everything over. It is called for `stag upgrade`.
func (s *server) upgrade(ctx context.Context, progress func(string)) (upgrade.Result, error) {
	<-s.ready
	s.upgrading.Lock()
	defer s.upgrading.Unlock()
	if s.ending.Load() {
		return upgrade.Result{}, errors.New("the process ends")
	}
	// Connections that the kernel accepts meanwhile wait in the queue of the socket.
	s.l.SetDeadline(time.Unix(1, 0))
	s.pause.Lock()
	defer s.pause.Unlock()
	s.taking.Wait()
	progress("starting the new process")
	r, err := upgrade.Restart(ctx, func(ctx context.Context, c *net.UnixConn) (upgrade.Result, error) {
		progress("the new process prepares itself")
		return s.adapter.Offer(ctx, c, adapter.Offering{Objects: s.objects})
	})
	if s.handed != nil {
		err = errors.Join(err, s.handed.Close())
		s.handed = nil
	}
	if err != nil {
		s.l.SetDeadline(time.Time{})
		return r, err
	}
	s.ending.Store(true)
	s.left <- r.PID
	return r, nil
}

// objects returns the listening socket and the counts.
func (s *server) objects(clock.Instant) ([]portable.Object, error) {
	f, err := s.l.File()
	if err != nil {
		return nil, err
	}
	s.handed = f
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s.result)
	return []portable.Object{{Kind: objectKind, Data: data, Files: []*os.File{f}}}, err
}
