// Package perf implements `stag perf`: it measures RDMA Writes, Reads and Sends between two machines, with the tests
// and output of perftest. One end is the server, and the other calls it. Both get the same options, and compare them.
package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// Test is the name of a test, as in perftest.
type Test string

// These are the tests. A bandwidth test has many messages outstanding at a time, a latency test has one.
const (
	WriteBW  Test = "write_bw"
	ReadBW   Test = "read_bw"
	SendBW   Test = "send_bw"
	WriteLat Test = "write_lat"
	ReadLat  Test = "read_lat"
	SendLat  Test = "send_lat"
)

// Tests has every value of Test.
var Tests = []Test{WriteBW, ReadBW, SendBW, WriteLat, ReadLat, SendLat}

// MaxSize is the size of the largest message, and LastSize is the last size of -a, in octets.
const (
	MaxSize  = 1 << 30
	LastSize = 1 << 23
)

// op returns the operation that carries the messages.
func (t Test) op() rdma.WROp {
	switch t {
	case WriteBW, WriteLat:
		return rdma.WRWrite
	case ReadBW, ReadLat:
		return rdma.WRRead
	}
	return rdma.WRSend
}

// Latency reports whether the test measures latency.
func (t Test) Latency() bool { return t == WriteLat || t == ReadLat || t == SendLat }

// Options say what to measure, and how.
type Options struct {
	Test       Test
	Address    string // address of the server without the port; "": be the server
	Port       uint16
	Links      []string // names of the interfaces to use: the ports of one adapter
	KernelPort bool     // use the kernel's TCP instead of Links
	carrier.Asked
	Generic bool   // use Links in generic mode
	Daemon  string // socket of the daemon whose adapter is used instead of Links

	Size       int           // size of a message in octets
	All        bool          // measure every power of two from 2 to LastSize instead of Size
	Iterations uint64        // number of messages for each QP and size
	Duration   time.Duration // time for each size, instead of Iterations
	Margin     time.Duration // time at each end of Duration that is not measured
	Endless    bool          // repeat the test for Duration until Ctrl-C
	QPs        int
	TxDepth    int  // most outstanding messages of a QP
	RxDepth    int  // number of receives that a QP posts for Sends
	List       int  // number of messages to post with one call; 0 means 1
	Moderation int  // number of messages for each completion; 0: the default of perftest
	Inline     int  // size in octets up to which messages are posted inline
	Events     bool // sleep until there is a completion, instead of polling
	Both       bool
	Verify     bool // check the data that arrives
	Perftest   bool // the other end is a program of perftest

	Gbits     bool // print Gb/s instead of MiB/s
	NoPeak    bool // do not compute the peak
	Histogram bool // also print the distribution of latencies
	Unsorted  bool // also print all latencies, in their order

	Out      io.Writer    // gets the text during the run; nil: none
	Progress *os.File     // gets a progress line if it is a terminal; nil: none
	Log      *slog.Logger // log of the adapter; nil: no log
}

// ErrInterrupted is the error of a run that Ctrl-C ended. The result has what was measured until then.
var ErrInterrupted = errors.New("interrupted")

// grace is how long an interrupted client waits for outstanding messages.
const grace = 3 * time.Second

// Run runs a test, and closes everything that it made. The result is valid even if there is an error.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	whole, cancel := o.patient(ctx)
	defer cancel()
	s := &runner{Options: o, interrupted: func() bool { return ctx.Err() != nil }}
	s.result.Info = o.info()
	err = s.run(whole)
	if ctx.Err() != nil && !(o.Endless && err == nil) {
		err = ErrInterrupted // this error replaces the errors that the interrupt has caused
		s.result.Interrupted = true
	}
	return s.result, err
}

// patient returns the context for waits. At the client this context ends when grace has passed after the end of ctx,
// so that an interrupted client can complete its current size and print the result. At the server it ends with ctx.
func (o Options) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Address == "" {
		return context.WithCancel(ctx)
	}
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return whole, func() { stop(); cancel() }
}

// runner is one run of a test. It is the same for both kinds of peer.
type runner struct {
	Options
	interrupted func() bool
	adapter     *rdma.Adapter
	port        rdma.Port
	peer        peer
	lanes       []*lane
	aborted     atomic.Bool // this end has ended the connections of all lanes
	result      Result
}

// peer is the exchange with the other end. stagPeer implements it for stag perf, and perftestPeer for perftest. The
// runner calls the methods in this order. It calls begin, during and settle for each size.
type peer interface {
	// meet makes the lanes, connects them, and exchanges the parameters of the test.
	meet(ctx context.Context) error
	// active reports whether this end takes part while the sizes are measured.
	active() bool
	// begin prepares for a size. bye reports that the peer wants no more rounds.
	begin(ctx context.Context, number uint32, size int) (bye bool, err error)
	// during runs do, which is the round, and handles what the peer sends meanwhile.
	during(ctx context.Context, m *meter, do func(context.Context) error) error
	// settle returns the result of one size in a bandwidth test, for both directions.
	settle(ctx context.Context, m *meter, size int) (Bandwidth, error)
	// cut reports whether the peer has ended the round early.
	cut() bool
	// leave tells the peer that the test is over, and closes the connections.
	leave(ctx context.Context) error
	// why returns the cause of err, or err itself.
	why(err error) error
}

func (s *runner) run(ctx context.Context) (err error) {
	// A latency test uses inline progress: a message takes 3 us instead of 50 us. A bandwidth test uses an engine
	// beside the posting goroutines. The engine moves a few percent more. It also processes arrivals in bunches,
	// which the end that counts messages expects.
	cfg := rdma.Config{KernelPort: s.KernelPort, RegionHeap: s.heap(), Log: s.Log, Progress: rdma.ProgressEngine}
	if s.Test.Latency() {
		cfg.Progress = rdma.ProgressInline
	}
	switch {
	case s.Daemon != "":
		cfg.Daemon = s.Daemon
	case !s.KernelPort:
		cfg.Ports, cfg.Generic = s.Links, s.Generic
	}
	if s.adapter, err = s.Open(cfg); err != nil {
		return err
	}
	defer func() {
		if closing := s.adapter.Close(); err == nil {
			err = closing
		}
	}()
	at, err := s.adapter.Attributes()
	if err != nil {
		return err
	}
	if s.Inline > at.Limits.MaxInline {
		return fmt.Errorf("-I %d: the adapter takes up to %d octets inline", s.Inline, at.Limits.MaxInline)
	}
	s.port = at.Ports[0]
	if s.Perftest {
		s.peer = &perftestPeer{run: s}
	} else {
		s.peer = &stagPeer{run: s}
	}
	return s.peer.why(s.steps(ctx))
}

// steps runs the test from the first connection to the last line.
func (s *runner) steps(ctx context.Context) error {
	if err := s.peer.meet(ctx); err != nil {
		return err
	}
	s.describe()
	if err := s.printHeader(); err != nil {
		return err
	}
	for number, size := range s.numbered() {
		if s.interrupted() || !s.peer.active() {
			break
		}
		bye, err := s.measure(ctx, number, size)
		if err != nil {
			return err
		}
		if bye {
			break
		}
	}
	if err := s.peer.leave(ctx); err != nil {
		return err
	}
	if err := s.printEnd(); err != nil || !s.result.Interrupted {
		return err
	}
	return fmt.Errorf("the client was %w", ErrInterrupted)
}

func (s *runner) serves() bool { return s.Address == "" }

// drives reports whether this end sends messages of its own.
func (s *runner) drives() bool { return !s.serves() || s.Both }

// sizes returns the sizes to measure, in order, in octets.
func (o Options) sizes() (all []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= LastSize; size *= 2 {
		all = append(all, size)
	}
	return all
}

// numbered yields the rounds, numbered from 1, and their sizes.
func (o Options) numbered() iter.Seq2[uint32, int] {
	return func(yield func(uint32, int) bool) {
		for number := uint32(0); ; {
			for _, size := range o.sizes() {
				if number++; !yield(number, size) {
					return
				}
			}
			if !o.Endless {
				return
			}
		}
	}
}

// largest returns the size of the largest message.
func (o Options) largest() int {
	if o.All {
		return LastSize
	}
	return o.Size
}

// each calls do for every lane concurrently, and returns the first error.
func (s *runner) each(do func(*lane) error) error {
	ends := make(chan error, len(s.lanes))
	for _, l := range s.lanes {
		go func() {
			err := do(l)
			ends <- l.named(err) // send this error before the abort, because the abort makes the other lanes fail too
			if err != nil {
				s.abort()
			}
		}()
	}
	var first error
	for range s.lanes {
		if err := <-ends; first == nil {
			first = err
		}
	}
	return first
}

// abort ends all connections, so that no goroutine waits any longer.
func (s *runner) abort() {
	s.aborted.Store(true)
	for _, l := range s.lanes {
		l.qp.Abort()
	}
}
