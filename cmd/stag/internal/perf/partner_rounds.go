package perf

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// rounds measures each size, and says goodbye. What is said in between depends
// on the test: see package perftest.
func (p *partner) rounds(ctx context.Context) error {
	var last Bandwidth
	for _, size := range p.sizes() {
		if !p.active() || p.interrupted() {
			break
		}
		b, err := p.measure(ctx, size)
		if err != nil {
			return err
		}
		last = b
	}
	if p.Test == WriteLat {
		return nil
	}
	if err := p.sync(ctx); err != nil {
		return err
	}
	if p.Test.Latency() || p.Both || p.Test.op() == rdmaSend {
		return nil
	}
	theirs, err := p.swapReports(ctx, last)
	if err != nil {
		return err
	}
	if p.serves() {
		b, err := reported(theirs)
		if err == nil {
			err = p.foundBandwidth(b)
		}
		if err != nil {
			return err
		}
	}
	return p.sync(ctx)
}

// active says whether this end has anything to do while the test goes on.
func (p *partner) active() bool {
	return p.drives() || p.Test.op() == rdmaSend || p.Test == WriteLat
}

// measure measures one size.
func (p *partner) measure(ctx context.Context, size int) (b Bandwidth, err error) {
	for _, x := range p.strands {
		x.begin(size)
	}
	sends := p.Test.op() == rdmaSend
	if sends || p.Both {
		if err := p.sync(ctx); err != nil {
			return b, err
		}
	}
	m := p.newMeter()
	if !p.drives() {
		m.window = 0 // what comes at once has not been sent at once
	}
	stop := p.show(m, size)
	defer stop()
	if p.Test.Latency() {
		return b, p.turns(ctx, m, size, stop)
	}
	if err := p.attentive(ctx, func(ctx context.Context) error {
		return p.every(func(x *strand) error { return x.flow(ctx, m) })
	}); err != nil {
		return b, err
	}
	stop()
	b = p.bandwidth(m, size)
	if b.Iterations == 0 {
		return b, fmt.Errorf("no message of %d octets was completed between the margins: choose a longer -D, or a smaller -f", size)
	}
	whole, err := p.settle(ctx, b)
	if err != nil {
		return b, err
	}
	return b, p.foundBandwidth(whole)
}

// settle is what is said behind a size of bandwidth, and what it came to in both
// directions.
func (p *partner) settle(ctx context.Context, b Bandwidth) (Bandwidth, error) {
	sends := p.Test.op() == rdmaSend
	if p.All && p.Both && !sends {
		if err := p.sync(ctx); err != nil {
			return b, err
		}
	}
	if p.Both {
		report, err := p.swapReports(ctx, b)
		if err != nil {
			return b, err
		}
		theirs, err := reported(report)
		if err != nil {
			return b, err
		}
		b.add(theirs)
	}
	if p.All && sends {
		return b, p.sync(ctx)
	}
	return b, nil
}

// add adds the other direction.
func (b *Bandwidth) add(theirs Bandwidth) {
	b.Iterations += theirs.Iterations
	b.Seconds = max(b.Seconds, theirs.Seconds)
	b.PeakGbps += theirs.PeakGbps
	b.Gbps += theirs.Gbps
	b.Mpps += theirs.Mpps
}

// turns is a size of a test of latency, which has one QP.
func (p *partner) turns(ctx context.Context, m *meter, size int, stop func()) error {
	x := p.strands[0]
	run := x.call
	switch {
	case p.Test == WriteLat:
		run = x.bounce
	case p.serves():
		run = x.answer
	}
	times := newSamples()
	err := p.attentive(ctx, func(ctx context.Context) error { return run(ctx, times, m) })
	stop()
	return p.timed(times, size, err, p.interrupted())
}

// attentive does something while the peer may say by the control connection that
// it is done. It has sent all that it sends then, and what is under way arrives
// soon, or never. Only a client speaks unasked.
func (p *partner) attentive(ctx context.Context, do func(context.Context) error) error {
	p.asked.Store(false)
	if !p.serves() || p.Test.op() != rdmaSend {
		return do(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := p.control.overhear(ctx); err != nil {
			cancel(err)
			return
		}
		p.asked.Store(true)
		select {
		case <-time.After(patience):
			cancel(errSooner)
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	cancel(nil)
	<-over
	return err
}

var errSooner = errors.New("the client is done, and fewer messages have come than -n: was it given another one?")

// every does something for every QP at the same time, and returns the first
// error there was.
func (p *partner) every(do func(*strand) error) error {
	ends := make(chan error, len(p.strands))
	for _, x := range p.strands {
		go func() {
			err := do(x)
			if err != nil {
				p.aborted.Store(true)
				for _, other := range p.strands {
					other.qp.Abort()
				}
			}
			ends <- x.named(err)
		}()
	}
	var first error
	for range p.strands {
		if err := <-ends; first == nil {
			first = err
		}
	}
	return first
}
