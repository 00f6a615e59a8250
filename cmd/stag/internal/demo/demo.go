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
	Octets     uint64 // to move each way
	MTU        int    // octets; 0 means 1500
	V6         bool
	Generic    bool // attach in generic mode
	KernelPort bool // the kernel's TCP on loopback, whatever the rights

	Out      io.Writer // explanations as it goes; nil: none
	Progress io.Writer // the progress bar; nil: none
}

// Side is what one end has to say after a run.
type Side struct {
	Path            string  `json:"path"`
	OctetsSent      uint64  `json:"octets_sent"`
	OctetsReceived  uint64  `json:"octets_received"`
	Checksum        string  `json:"checksum_received"`
	Expected        string  `json:"checksum_expected"`
	FramesIn        uint64  `json:"frames_in,omitempty"`
	FramesOut       uint64  `json:"frames_out,omitempty"`
	Retransmissions uint64  `json:"retransmissions"`
	HeldMillis      float64 `json:"held_ms,omitempty"` // of the take-over
}

// Result is what a run found.
type Result struct {
	Offloaded bool    `json:"offloaded"`
	Seconds   float64 `json:"seconds"`
	Gbps      float64 `json:"goodput_gbps"` // both directions together
	MTU       int     `json:"mtu"`
	Sides     [2]Side `json:"sides"`
}

// The patterns that the two sides send.
const (
	seedA octets.Pattern = 0xa
	seedB octets.Pattern = 0xb
)

// Run makes two ends, moves the octets and takes everything away again.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Octets == 0 {
		return Result{}, errors.New("nothing to move: choose a size above 0")
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	stage, err := o.stage(ctx)
	if err != nil {
		return Result{}, err
	}
	r, err := o.move(ctx, stage)
	return r, errors.Join(err, stage.close())
}

// stage is two connected ends with a transfer on each, ready to go or going.
type stage interface {
	// start lets the transfers begin.
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
	return newPair(ctx, o)
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
	r := Result{Seconds: took.Seconds(), MTU: o.MTU}
	r.Gbps = float64(2*8*o.Octets) / took.Seconds() / 1e9
	fill(&r.Sides[0], a, b)
	fill(&r.Sides[1], b, a)
	return r, s.report(ctx, &r)
}

// fill notes what t sent and received, and what its peer says it sent.
func fill(side *Side, t, peer *octets.Transfer) {
	_, received := t.Sums()
	sent, _ := peer.Sums()
	side.OctetsSent, side.OctetsReceived = t.Sent(), t.Received()
	side.Checksum = fmt.Sprintf("%016x", received)
	side.Expected = fmt.Sprintf("%016x", sent)
}
