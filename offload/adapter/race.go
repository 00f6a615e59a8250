package adapter

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"
)

// attemptDelay is how long an attempt may take before the next address is tried at the
// same time (RFC 8305 §5 recommends 250 ms).
const attemptDelay = 250 * time.Millisecond

// interleave returns hosts with the two address families in turn. The family of the
// first host comes first. Each family keeps its order (RFC 8305 §4). The second attempt
// therefore uses the other family, in case one family does not work.
func interleave(hosts []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, h := range hosts {
		other := 0
		if h.Unmap().Is4() != hosts[0].Unmap().Is4() {
			other = 1
		}
		families[other] = append(families[other], h)
	}
	turns := make([]netip.Addr, 0, len(hosts))
	for i := range hosts {
		for _, f := range families {
			if i < len(f) {
				turns = append(turns, f[i])
			}
		}
	}
	return turns
}

// race tries hosts one after the other. The next attempt begins when one fails, or when
// delay has passed without an answer. The first connection wins, and race cancels the
// other attempts. The error joins the errors of all attempts, in the order of hosts.
// When race returns, no attempt runs any more.
func race[C io.Closer](ctx context.Context, hosts []netip.Addr, delay time.Duration,
	try func(context.Context, netip.Addr) (C, error)) (won C, err error) {
	type outcome struct {
		attempt int
		c       C
		err     error
	}
	outcomes := make(chan outcome, len(hosts))
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		running.Wait()
		close(outcomes)
		for o := range outcomes {
			if o.err == nil {
				o.c.Close()
			}
		}
	}()
	errs := make([]error, len(hosts))
	begun, failed := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			attempt := begun
			begun++
			running.Go(func() {
				c, err := try(ctx, hosts[attempt])
				outcomes <- outcome{attempt, c, err}
			})
			if begun < len(hosts) {
				next.Reset(delay)
			}
		case o := <-outcomes:
			if o.err == nil {
				return o.c, nil
			}
			errs[o.attempt] = o.err
			failed++
			switch {
			case begun < len(hosts) && ctx.Err() == nil:
				next.Reset(0)
			case failed == begun:
				return won, allOf(errs[:begun])
			}
		}
	}
}

// allOf joins all errors in one line.
func allOf(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}
