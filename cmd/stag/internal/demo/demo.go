// Package demo is what `stag demo` shows: RDMA between two hosts, what is
// refused, and how fast it was. It is an application of package rdma as any
// other.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
)

// Options say what is shown.
type Options struct {
	Octets     uint64 // to move by each operation, above 0
	Message    int    // octets of a message; 0 means DefaultMessage
	MTU        int    // octets; 0 means 1500
	V6         bool
	Generic    bool // attach in generic mode
	KernelPort bool // the kernel's TCP on loopback, whatever the rights

	Out      io.Writer    // explanations as it goes; nil: none
	Progress io.Writer    // a bar on a terminal, else lines; nil: none
	Log      *slog.Logger // of both adapters; nil: none
}

// DefaultMessage and MaxMessage are octets.
const (
	DefaultMessage = 256 << 10
	MaxMessage     = 16 << 20
)

// Result is what a run found.
type Result struct {
	Offloaded  bool        `json:"offloaded"`
	Reason     string      `json:"reason,omitempty"` // why it was not offloaded
	MTU        int         `json:"mtu,omitempty"`
	Operations []Operation `json:"operations"`
	Refusals   []Refusal   `json:"refusals"`
	Sides      [2]Side     `json:"sides"`
}

// Operation is what moving octets by one RDMA operation took.
type Operation struct {
	Name     string    `json:"operation"`
	From     string    `json:"from"` // the side whose octets were moved
	To       string    `json:"to"`   // the side that has compared every one
	Octets   uint64    `json:"octets"`
	Messages uint64    `json:"messages"`
	Seconds  float64   `json:"seconds"` // making up and comparing the octets included
	Gbps     float64   `json:"goodput_gbps"`
	Frames   *[2]Count `json:"frames,omitempty"` // by side; none with the kernel port
	Path     string    `json:"path"`
}

// Count is frames.
type Count struct {
	In  uint64 `json:"in"`
	Out uint64 `json:"out"`
}

// Refusal is something that must not be done, and what was answered.
type Refusal struct {
	Tried     string `json:"tried"`
	Error     string `json:"error"` // of the side that tried it
	Code      string `json:"code"`  // layer/type/code of the Terminate, hexadecimal
	SentBy    string `json:"sent_by"`
	Untouched bool   `json:"memory_untouched"`
}

// Side is what one end has to say.
type Side struct {
	Address    string `json:"address"`
	Path       string `json:"path"`
	NoZeroCopy string `json:"no_zero_copy,omitempty"`
}

// errInterrupted is what a run ends with after Ctrl-C.
var errInterrupted = errors.New("interrupted")

// Run makes two ends, shows everything and takes it away again, whatever
// happened. When ctx ends it stops as soon as it can.
func Run(ctx context.Context, o Options) (Result, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		// Two hosts in one process: the applications must not wait for the
		// engines' system calls to return.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * runtime.NumCPU()))
	}
	r, err := o.fill().run(ctx)
	if ctx.Err() != nil {
		err = errInterrupted // whatever it made of the steps that it met
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
	r.Sides, err = s.describe()
	return r, err
}

// and is err with what went wrong with cleaning up, in one line.
func and(err, cleaning error) error {
	switch {
	case cleaning == nil:
		return err
	case err == nil:
		return fmt.Errorf("clean up: %w", cleaning)
	}
	return fmt.Errorf("%w; and clean up: %w", err, cleaning)
}
