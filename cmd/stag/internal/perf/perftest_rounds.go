package perf

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// active reports whether this end takes part while the test runs.
func (p *perftestPeer) active() bool {
	return p.run.drives() || p.run.Test.op() == rdmaSend || p.run.Test == WriteLat
}

// cut returns false, because perftest cannot report an interrupt.
func (p *perftestPeer) cut() bool { return false }

// begin prepares for a size. The peer has not sent anything of that size yet.
func (p *perftestPeer) begin(ctx context.Context, _ uint32, size int) (bye bool, err error) {
	for _, x := range p.strands {
		x.begin(size)
	}
	if p.run.Test.op() == rdmaSend || p.run.Both {
		return false, p.sync(ctx)
	}
	return false, nil
}

// leave does the last exchange with the peer, and closes the connections. The messages depend on the test: see package
// perftest.
func (p *perftestPeer) leave(ctx context.Context) error {
	if err := p.farewell(ctx); err != nil {
		return err
	}
	p.part(ctx)
	return nil
}

func (p *perftestPeer) farewell(ctx context.Context) error {
	if p.run.Test == WriteLat {
		return nil
	}
	if err := p.sync(ctx); err != nil {
		return err
	}
	if p.run.Test.Latency() || p.run.Both || p.run.Test.op() == rdmaSend {
		return nil
	}
	theirs, err := p.swapReports(ctx, p.last)
	if err != nil {
		return err
	}
	if p.run.serves() {
		b, err := reported(theirs)
		if err == nil {
			err = p.run.foundBandwidth(b)
		}
		if err != nil {
			return err
		}
	}
	return p.sync(ctx)
}

// settle does the exchange after a size of a bandwidth test. It returns the result for both directions.
func (p *perftestPeer) settle(ctx context.Context, m *meter, size int) (Bandwidth, error) {
	b := p.run.bandwidth(m, size, found{})
	if b.Iterations == 0 {
		return b, fmt.Errorf("no message of %d octets was completed between the margins: choose a longer -D, or a smaller -f", size)
	}
	p.last = b
	sends := p.run.Test.op() == rdmaSend
	if p.run.All && p.run.Both && !sends {
		if err := p.sync(ctx); err != nil {
			return b, err
		}
	}
	if p.run.Both {
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
	if p.run.All && sends {
		return b, p.sync(ctx)
	}
	return b, nil
}

// add adds the result of the other direction.
func (b *Bandwidth) add(theirs Bandwidth) {
	b.Iterations += theirs.Iterations
	b.Seconds = max(b.Seconds, theirs.Seconds)
	b.PeakGbps += theirs.PeakGbps
	b.Gbps += theirs.Gbps
	b.Mpps += theirs.Mpps
}

// during runs do. At the server of a send test it also waits for the client's message on the control connection that
// the client is done. After that message, outstanding Sends arrive within patience or never.
func (p *perftestPeer) during(ctx context.Context, m *meter, do func(context.Context) error) error {
	if !p.run.drives() {
		m.window = 0 // no peak: messages that arrive together were not sent together
	}
	p.asked.Store(false)
	if !p.run.serves() || p.run.Test.op() != rdmaSend {
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
