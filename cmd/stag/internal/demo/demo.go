// Package demo implements `stag demo`: RDMA between two hosts, refused operations, and
// goodput. It uses package rdma as any application does.
//
// `stag demo iscsi` is in the files iscsi.go (its two ends), iscsi_move.go (what is moved),
// iscsi_lies.go (what is refused), iscsi_liar.go (peers that lie) and iscsi_print.go.
//
// `stag demo failover` is in the files failover.go (its two ends and its result),
// failover_move.go (what is moved), failover_events.go (what happens to the cables),
// failover_tcp.go (the kernel's TCP beside it), gaps.go and failover_print.go.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
)

// Options say what a demonstration does, and where its output goes.
type Options struct {
	Octets        uint64 // octets to move with each operation, above 0
	Message       int    // size of a message in octets; 0 means DefaultMessage
	MTU           int    // MTU of the veth pair in octets; 0 means 1500
	V6            bool
	Generic       bool // attach the XDP program in generic mode
	KernelPort    bool // use the kernel's TCP on loopback, even if the user may make namespaces
	carrier.Asked      // AF_XDP is over veth, and the kernel's TCP on loopback
	Pulls         int  // RunFailover: how often the cable is pulled during each operation, above 0

	twin bool // two cables join the hosts

	Out      io.Writer    // receives explanations during the run; nil: no explanations
	Progress io.Writer    // receives a progress bar if it is a terminal, else lines; nil: no progress
	Log      *slog.Logger // log of both adapters; nil: no log
}

// DefaultMessage and MaxMessage are message sizes in octets.
const (
	DefaultMessage = 256 << 10
	MaxMessage     = 16 << 20
)

// Result is the result of a demonstration.
type Result struct {
	Offloaded  bool        `json:"offloaded"`
	Reason     string      `json:"reason,omitempty"` // the reason why the connections were not taken over
	MTU        int         `json:"mtu,omitempty"`
	Operations []Operation `json:"operations"`
	Refusals   []Refusal   `json:"refusals"`
	Window     Window      `json:"window"`
	Counter    Counter     `json:"counter"`
	Sides      [2]Side     `json:"sides"`
}

// Operation is the result of moving octets by one RDMA operation.
type Operation struct {
	Name     string    `json:"operation"`
	From     string    `json:"from"` // side whose memory had the octets before the operation
	To       string    `json:"to"`   // side that received the octets and checked them
	Octets   uint64    `json:"octets"`
	Messages uint64    `json:"messages"`
	Seconds  float64   `json:"seconds"` // duration, with the time to generate and to check the octets
	Gbps     float64   `json:"goodput_gbps"`
	Frames   *[2]Count `json:"frames,omitempty"` // number of frames of each side; nil with the kernel port
	Path     string    `json:"path"`
}

// Count is the number of frames that a side has received and sent.
type Count struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// Refusal is an operation that must be refused, and the error that it got.
type Refusal struct {
	Tried     string `json:"tried"`
	Error     string `json:"error"` // error at the side that tried the operation
	Code      string `json:"code"`  // layer, type and code of the Terminate, in hexadecimal
	SentBy    string `json:"sent_by"`
	Untouched bool   `json:"memory_untouched"`
}

// Side describes one end.
type Side struct {
	Address    string `json:"address"`
	Path       string `json:"path"`
	NoZeroCopy string `json:"no_zero_copy,omitempty"`
}

// errInterrupted is the error of a run that Ctrl-C ended.
var errInterrupted = errors.New("interrupted")

// Run makes two ends, runs the demonstration, and removes everything that it made, also
// after an error. It stops soon after ctx ends.
func Run(ctx context.Context, o Options) (Result, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		// Two hosts run in one process. With more threads than processors, the
		// applications do not wait for system calls of the engines.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * runtime.NumCPU()))
	}
	r, err := o.fill().run(ctx)
	if ctx.Err() != nil {
		err = errInterrupted // this error replaces the errors that the interrupt has caused in other steps
	}
	return r, err
}

func (o Options) fill() Options {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Message == 0 {
		o.Message = DefaultMessage
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

func (o Options) run(ctx context.Context) (r Result, err error) {
	s, err := o.stage(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = and(err, s.close()) }()
	r = Result{Offloaded: s.offloaded(), Reason: s.why}
	if s.offloaded() {
		r.MTU = o.MTU
	}
	if r.Operations, err = o.transfers(ctx, s); err != nil {
		return Result{}, err
	}
	if r.Refusals, err = o.refusals(ctx, s); err != nil {
		return Result{}, err
	}
	if r.Window, err = o.lend(ctx, s); err != nil {
		return Result{}, fmt.Errorf("a memory window: %w", err)
	}
	if r.Counter, err = o.counter(ctx, s); err != nil {
		return Result{}, fmt.Errorf("a shared counter: %w", err)
	}
	r.Sides, err = s.describe()
	return r, err
}

// and adds the error of the clean-up to err, in one line.
func and(err, cleaning error) error {
	switch {
	case cleaning == nil:
		return err
	case err == nil:
		return fmt.Errorf("clean up: %w", cleaning)
	}
	return fmt.Errorf("%w; and clean up: %w", err, cleaning)
}
