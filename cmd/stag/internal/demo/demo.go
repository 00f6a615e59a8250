// Package demo is what `stag demo` shows.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
)

// Options say what is shown.
type Options struct {
	Octets     uint64 // to move each way, above 0
	MTU        int    // octets; 0 means 1500
	V6         bool
	Generic    bool // attach in generic mode
	KernelPort bool // the kernel's TCP on loopback, whatever the rights

	Out      io.Writer // explanations as it goes; nil: none
	Progress io.Writer // a bar on a terminal, else lines; nil: none
}

// Result is what a run found.
type Result struct {
	Offloaded bool    `json:"offloaded"`
	Reason    string  `json:"reason,omitempty"` // why it was not offloaded
	Seconds   float64 `json:"seconds"`
	Gbps      float64 `json:"goodput_gbps"` // both directions together
	MTU       int     `json:"mtu,omitempty"`
	Sides     [2]Side `json:"sides"`
}

// Side is what one end has to say after a run.
type Side struct {
	Path           string   `json:"path"`
	OctetsSent     uint64   `json:"octets_sent"`
	OctetsReceived uint64   `json:"octets_received"`
	Checksum       string   `json:"checksum"` // of what was received, and of what the other side sent
	Offload        *Offload `json:"offload,omitempty"`
}

// Offload is what only an end that was taken over can say.
type Offload struct {
	FramesIn        uint64  `json:"frames_in"`
	FramesOut       uint64  `json:"frames_out"`
	Retransmissions uint64  `json:"retransmissions"` // segments
	HeldMillis      float64 `json:"held_ms"`         // how long the take-over held segments back
	NoZeroCopy      string  `json:"no_zero_copy,omitempty"`
}

// The patterns that the two sides send.
const (
	seedA octets.Pattern = 0xa
	seedB octets.Pattern = 0xb
)

// errInterrupted is what a run ends with after Ctrl-C.
var errInterrupted = errors.New("interrupted")

// Run makes two ends, moves the octets and takes everything away again,
// whatever happened. When ctx ends it stops as soon as it can.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r, err := o.run(ctx)
	if ctx.Err() != nil {
		err = errInterrupted // whatever it made of the steps that it met
	}
	return r, err
}

func (o Options) run(ctx context.Context) (r Result, err error) {
	s, err := o.stage(ctx)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = and(err, s.close()) }()
	return o.move(ctx, s)
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

// stage is two ends that can be connected, with a transfer on each.
type stage interface {
	// start connects the ends and lets the transfers begin.
	start(ctx context.Context, a, b *octets.Transfer) error
	// report fills in what the ends know beside the octets.
	report(ctx context.Context, r *Result) error
	close() error
}

func (o Options) stage(ctx context.Context) (stage, error) {
	if o.KernelPort {
		return newLoopback(ctx, o, "as asked for")
	}
	if why := missingRights(); why != nil {
		return newLoopback(ctx, o, why.Error())
	}
	return newPair(o)
}

// move runs one transfer each way and checks what arrived.
func (o Options) move(ctx context.Context, s stage) (Result, error) {
	a := octets.NewTransfer(octets.Plan{Send: o.Octets, Seed: seedA, Expect: o.Octets, PeerSeed: seedB})
	b := octets.NewTransfer(octets.Plan{Send: o.Octets, Seed: seedB, Expect: o.Octets, PeerSeed: seedA})
	begin := time.Now()
	if err := s.start(ctx, a, b); err != nil {
		return Result{}, err
	}
	if err := o.watch(ctx, a, b); err != nil {
		return Result{}, err
	}
	took := time.Since(begin)
	r := Result{Seconds: took.Seconds(), Gbps: float64(2*8*o.Octets) / took.Seconds() / 1e9}
	if err := errors.Join(r.Sides[0].fill(a, b), r.Sides[1].fill(b, a)); err != nil {
		return Result{}, err
	}
	return r, s.report(ctx, &r)
}

// fill notes what t sent and received. Each octet was compared with the pattern
// as it came; the checksum says the same of them all together.
func (s *Side) fill(t, peer *octets.Transfer) error {
	_, received := t.Sums()
	sent, _ := peer.Sums()
	if received != sent {
		return fmt.Errorf("the checksum of what was received is %016x, and of what was sent %016x", received, sent)
	}
	s.OctetsSent, s.OctetsReceived = t.Sent(), t.Received()
	s.Checksum = fmt.Sprintf("%016x", received)
	return nil
}
