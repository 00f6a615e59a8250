// Package perf measures what RDMA Writes, Reads and Sends do between two
// machines: what `stag perf` runs, in the shape of perftest. One end serves,
// the other calls it; both are given the same options, and compare them.
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

	"github.com/stag-rdma/stag/rdma"
)

// Test is what is measured, by perftest's name.
type Test string

// The tests. Bandwidths are of messages under way at the same time, latencies
// of one at a time.
const (
	WriteBW  Test = "write_bw"
	ReadBW   Test = "read_bw"
	SendBW   Test = "send_bw"
	WriteLat Test = "write_lat"
	ReadLat  Test = "read_lat"
	SendLat  Test = "send_lat"
)

// Tests are all of them.
var Tests = []Test{WriteBW, ReadBW, SendBW, WriteLat, ReadLat, SendLat}

// MaxSize is the largest message, octets; LastSize is where -a ends.
const (
	MaxSize  = 1 << 30
	LastSize = 1 << 23
)

// op is what the messages travel by.
func (t Test) op() rdma.WROp {
	switch t {
	case WriteBW, WriteLat:
		return rdma.WRWrite
	case ReadBW, ReadLat:
		return rdma.WRRead
	}
	return rdma.WRSend
}

// Latency reports whether the test is of latency.
func (t Test) Latency() bool { return t == WriteLat || t == ReadLat || t == SendLat }

// Options say what is measured, and how.
type Options struct {
	Test       Test
	Address    string // of the server, without the port; "": be the server
	Port       uint16
	Link       string // the interface to use
	KernelPort bool   // instead of Link
	Generic    bool   // use Link in generic mode

	Size       int           // octets of a message
	All        bool          // every power of two from 2 to LastSize instead
	Iterations uint64        // messages of each QP and size
	Duration   time.Duration // of each size, instead of Iterations
	Margin     time.Duration // at both ends of Duration, not counted
	Endless    bool          // Duration after Duration, until Ctrl-C
	QPs        int
	TxDepth    int  // messages of a QP that are under way
	RxDepth    int  // Sends that a QP has room for
	List       int  // messages posted with one call; 0 means 1
	Moderation int  // messages to a completion; 0: as perftest has it
	Inline     int  // octets; messages up to it go inline
	Events     bool // sleep until there is a completion, instead of polling
	Both       bool
	Verify     bool // compare the octets
	Perftest   bool // the other end is a program of perftest

	Gbits     bool // text in Gb/s instead of MiB/s
	NoPeak    bool // do not look for the peak
	Histogram bool // with the distribution of latencies
	Unsorted  bool // with all latencies, in their order

	Out      io.Writer    // text as it goes; nil: none
	Progress *os.File     // one line that changes, if it is a terminal; nil: none
	Log      *slog.Logger // what the adapter logs; nil: nothing
}

// ErrInterrupted is what a run ends with after Ctrl-C. What it measured until
// then is in its result.
var ErrInterrupted = errors.New("interrupted")

// grace is how long an interrupted client waits for what is under way.
const grace = 3 * time.Second

// Run measures, and takes down everything that it made. The result is what was
// measured, also where there is an error.
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
		err = ErrInterrupted // whatever it made of the steps that it met
		s.result.Interrupted = true
	}
	return s.result, err
}

// patient is a context for the waiting. A client that is interrupted ends the
// size that it is at, and says what it found; a server has nothing to say.
func (o Options) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Address == "" {
		return context.WithCancel(ctx)
	}
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return whole, func() { stop(); cancel() }
}

// runner is one run. Peers of both kinds have the same one: peer says how this end and the
// other come to terms.
type runner struct {
	Options
	interrupted func() bool
	adapter     *rdma.Adapter
	port        rdma.Port
	peer        peer
	lanes       []*lane
	aborted     atomic.Bool // this end has ended the connections of the lanes
	result      Result
}

// peer is how this end and the other come to terms: stagPeer if that is stag perf,
// perftestPeer if it is perftest. The runner calls the methods in this order; begin,
// during and settle for each size.
type peer interface {
	// meet makes the lanes, connects them, and agrees on what there is to agree on.
	meet(ctx context.Context) error
	// active reports whether this end has anything to do while the sizes are measured.
	active() bool
	// begin prepares for a size. bye: the peer wants no more rounds.
	begin(ctx context.Context, number uint32, size int) (bye bool, err error)
	// during runs do, which is the round, and heeds what the peer says meanwhile.
	during(ctx context.Context, m *meter, do func(context.Context) error) error
	// settle returns what a size of bandwidth came to in both directions.
	settle(ctx context.Context, m *meter, size int) (Bandwidth, error)
	// cut reports whether the peer has cut the round short.
	cut() bool
	// leave says goodbye and closes the connections.
	leave(ctx context.Context) error
	// why is err, or what the peer's end of the connections says about it.
	why(err error) error
}

func (s *runner) run(ctx context.Context) (err error) {
	// Latency is what inline progress is for: 3 us instead of 50. An engine beside
	// those who post moves a few percent more, and takes in what comes in bunches,
	// as the end that counts messages expects.
	cfg := rdma.Config{KernelPort: s.KernelPort, RegionHeap: s.heap(), Log: s.Log, Progress: rdma.ProgressEngine}
	if s.Test.Latency() {
		cfg.Progress = rdma.ProgressInline
	}
	if !s.KernelPort {
		cfg.Ports, cfg.Generic = []string{s.Link}, s.Generic
	}
	if s.adapter, err = rdma.Open(cfg); err != nil {
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

// steps are those of a run, from the first connection to the last line.
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

// drives says whether this end sends messages of its own.
func (s *runner) drives() bool { return !s.serves() || s.Both }

// sizes are what is measured one after the other, octets.
func (o Options) sizes() (all []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= LastSize; size *= 2 {
		all = append(all, size)
	}
	return all
}

// numbered are the rounds, from 1, and their sizes.
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

// largest is the largest message.
func (o Options) largest() int {
	if o.All {
		return LastSize
	}
	return o.Size
}

// each does something for every QP at the same time, and returns the first
// error there was.
func (s *runner) each(do func(*lane) error) error {
	ends := make(chan error, len(s.lanes))
	for _, l := range s.lanes {
		go func() {
			err := do(l)
			if err != nil {
				s.abort()
			}
			ends <- l.named(err)
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

// abort ends all connections, so that nobody waits for anything.
func (s *runner) abort() {
	s.aborted.Store(true)
	for _, l := range s.lanes {
		l.qp.Abort()
	}
}
