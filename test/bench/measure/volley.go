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

// player is one side of a ping-pong, in which one message at a time is in transit. Only
// one goroutine uses a player.
type player interface {
	hit(n uint64) error   // sends message n
	await(n uint64) error // waits for message n of the other side; errOver if the ping-pong is over
}

// errOver is the error of a player that waits for a message after the ping-pong has
// ended.
var errOver = errors.New("the volley is over")

// volley is a ping-pong: two players send a message back and forth. The player on side
// A begins and measures. Side B has no player if the adapter answers by itself.
type volley struct {
	players [2]player
	over    atomic.Bool
	closing []func() error // functions that end the connection, called in reverse order
	after   []func() error // functions that close the rest, called when both sides have ended
}

// longestVolley is the largest value of the histogram.
const longestVolley = 10 * time.Second

// play sends the message back and forth for warm, and then for d. It returns the times
// of whole round trips after warm.
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

// patience is the number of empty polls after which a side checks whether the ping-pong
// is over or the other side has stopped.
const patience = 1 << 12

// looker is the common part of players that poll.
type looker struct {
	v     *volley
	looks int
	since time.Time // time of the first check since the last arrival; zero before that check
}

// came must be called when a message has arrived.
func (l *looker) came() { l.looks, l.since = 0, time.Time{} }

// inVain must be called after each empty poll.
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
		return fmt.Errorf("nothing has arrived for %v", longestVolley)
	}
	return nil
}

// lineUp connects the sides of a stage and makes the players of one kind. size is the
// length of the message in octets.
type lineUp func(ctx context.Context, st *stage, size int) (*volley, error)

// playOn makes a stage, plays one ping-pong on it, and closes the stage.
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

// sides are both sides. The accepting side is first.
var sides = [2]pair.Side{to, from}
