package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// player is one side of a volley, in which one message at a time is under way.
// One goroutine uses it.
type player interface {
	hit(n uint64) error   // sends message n
	await(n uint64) error // returns when the other side's message n has arrived; errOver if the volley is over
}

// errOver ends the side that waits.
var errOver = errors.New("the volley is over")

// volley is two players who send a message back and forth. The one on side A
// serves and measures; there is none on side B when the adapter answers by
// itself.
type volley struct {
	players [2]player
	over    atomic.Bool
	closing []func() error // what ends the connection; run last to first
	after   []func() error // what is left to close when nobody plays any more
}

// longestVolley bounds the histogram.
const longestVolley = 10 * time.Second

// play lets the message go back and forth for warm, and then for d, and returns
// the times of whole rounds.
func (v *volley) play(ctx context.Context, warm, d time.Duration) (*hdrhistogram.Histogram, error) {
	answered := make(chan error, 1)
	go func() { answered <- v.answer() }()
	h, err := v.serve(ctx, warm, d)
	v.over.Store(true)
	for i := len(v.closing) - 1; i >= 0; i-- {
		err = errors.Join(err, v.closing[i]())
	}
	if failed := <-answered; !errors.Is(failed, errOver) {
		err = errors.Join(err, fmt.Errorf("side %v: %w", to, failed))
	}
	for _, f := range v.after {
		err = errors.Join(err, f())
	}
	return h, err
}

func (v *volley) serve(ctx context.Context, warm, d time.Duration) (*hdrhistogram.Histogram, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	h := hdrhistogram.New(1, int64(longestVolley), 3)
	p, begun := v.players[from], time.Now()
	for n, last := uint64(1), begun; ; n++ {
		if err := errors.Join(p.hit(n), p.await(n)); err != nil {
			return nil, fmt.Errorf("side %v: %w", from, err)
		}
		now := time.Now()
		if now.Sub(begun) > warm {
			if err := h.RecordValue(int64(now.Sub(last))); err != nil {
				return nil, err
			}
		}
		last = now
		if now.Sub(begun) > warm+d {
			return h, nil
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

func (v *volley) answer() error {
	p := v.players[to]
	if p == nil {
		return errOver
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := uint64(1); ; n++ {
		if err := p.await(n); err != nil {
			return err
		}
		if err := p.hit(n); err != nil {
			return err
		}
	}
}

// patience is how many looks in vain a side takes before it asks whether the
// volley is over, or the other side gone.
const patience = 1 << 12

// looker is what players who look again and again have in common.
type looker struct {
	v     *volley
	looks int
	since time.Time // of the first look in vain since something came
}

// came is called when something has come.
func (l *looker) came() { l.looks, l.since = 0, time.Time{} }

// inVain is called after each look that found nothing.
func (l *looker) inVain() error {
	if l.looks++; l.looks%patience != 0 {
		return nil
	}
	switch {
	case l.v.over.Load():
		return errOver
	case l.since.IsZero():
		l.since = time.Now()
	case time.Since(l.since) > longestVolley:
		return fmt.Errorf("nothing has come for %v", longestVolley)
	}
	return nil
}

// lineUp makes the players of a kind of volley, on a stage.
type lineUp func(ctx context.Context, st *stage, size int) (*volley, error)

// playOn plays one volley on a stage of its own.
func playOn(ctx context.Context, s setting, size int, make lineUp, warm, d time.Duration) (h *hdrhistogram.Histogram, err error) {
	st, err := newStage(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	v, err := make(ctx, st, size)
	if err != nil {
		return nil, err
	}
	return v.play(ctx, warm, d)
}

// sides are both, the one that accepts first.
var sides = [2]pair.Side{to, from}
