package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// rest is when an engine next needs to run, and until when Run sleeps.
type rest struct {
	next   clock.Instant // what the last step reported
	vain   int           // steps in a row that moved nothing
	asleep atomic.Bool   // Run sleeps, which any goroutine may read ...
	alarm  clock.Instant // ... until then
	moved  uint64        // packets moved when Run last looked for rest; Run's own
}

// Progress runs commands and one step at time now, if nobody else is doing so,
// and reports when the engine next needs to run. ok is false when another
// goroutine holds the token: it does the work instead. It is what Run does
// again and again; who posts or polls calls Visit.
func (e *Engine) Progress(now clock.Instant) (next clock.Instant, ok bool) {
	return e.turn(now, true)
}

// turn is Progress and Visit. A keeper that has found work looks again at once.
func (e *Engine) turn(now clock.Instant, keeper bool) (next clock.Instant, ok bool) {
	if !e.token.CompareAndSwap(false, true) {
		return clock.Never, false
	}
	if e.ended.Load() {
		e.token.Store(false)
		return clock.Never, false
	}
	now = max(now, e.now) // another may have stepped since the caller looked at the clock
	e.now = now
	e.reader.Enter() // commands call upper layers too
	e.cmds.runAll()
	next = e.Step(now)
	if e.worked && keeper {
		next = now // there may be more
	}
	e.rest.next = next
	early := next != clock.Never && e.rest.asleep.Load() && (e.rest.alarm == clock.Never || next < e.rest.alarm)
	heard := e.takeNews()
	e.reader.Leave()
	e.deliver()
	e.token.Store(false)
	if early {
		e.port.Wake() // the sleeper meant to sleep longer
	}
	for _, tell := range heard {
		tell()
	}
	e.after()
	return next, true
}

// deliver tells the world which flows have ended. The caller has the token: another
// goroutine's next step cannot overtake it.
func (e *Engine) deliver() {
	if e.cfg.Ended != nil {
		for _, end := range e.ends {
			e.cfg.Ended(end)
		}
	}
	e.ends = e.ends[:0]
}

// after tells the world what else a step has led to.
func (e *Engine) after() {
	if e.cfg.After != nil {
		e.cfg.After()
	}
}

// Run keeps the engine going until ctx ends: on a thread of its own, spinning
// for Config.Spin after it last found work, asleep in the port otherwise. It
// is also the keeper of an engine whose users call Progress themselves: it
// sleeps without the token, and minds the deadlines and the arrivals that
// nobody polls for.
//
// When it returns every flow has ended, with stream.ErrPort and what ended ctx if
// that has a cause of its own: the engine is of no use any more. The error is the
// port's; nil when ctx has ended.
func (e *Engine) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(e.stopped)
	defer context.AfterFunc(ctx, e.port.Wake)()
	err := e.loop(ctx)
	why := err
	if cause := context.Cause(ctx); why == nil && !errors.Is(cause, context.Canceled) {
		why = cause
	}
	e.endAll(why)
	e.reader.Close() // nothing is left that could look an STag up
	return err
}

// loop is Run without its end.
func (e *Engine) loop(ctx context.Context) error {
	busy, yielded := clock.Now(), false
	for ctx.Err() == nil {
		now := clock.Now()
		next, ok := e.Progress(now)
		if nap := e.visits.Nap(now); nap != 0 {
			if err := e.doze(now, nap); err != nil {
				return err
			}
			continue
		}
		if ok && next == now {
			busy, yielded = now, false
			continue
		}
		if !yielded {
			yield()
			yielded = true
			continue
		}
		if now.Sub(busy) < e.cfg.Spin {
			continue
		}
		if e.streams() {
			if err := e.pause(now); err != nil {
				return err
			}
			yielded = false
			continue
		}
		limit, err := e.lieDown(now)
		if err != nil {
			return err
		}
		if limit == 0 {
			continue
		}
		if !e.bells.any() { // one may have rung silently while we had the token
			err = e.port.Sleep(limit)
		}
		if err != nil {
			return err
		}
		e.getUp()
	}
	return nil
}

// yield lets whoever waits for this processor have it: often that is the thread
// that fills our ring, and what it brings is found without sleeping and being
// woken. It costs a system call where nobody waits.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// A pause is a sleep that arrivals do not end. To be woken for the first packet of
// a bunch costs the other end, or whoever carries the packets there, more than
// the packet itself: between two ends that stream, pauses leave the bunches whole.
// The engine pauses when it has moved so many packets since it last looked for
// longer rest; a few messages back and forth never make it do so.
const (
	pause     = 20 * time.Microsecond // the kernel's timers add up to 50
	streaming = 64                    // packets, both ways
)

// streams reports whether packets have come and gone in numbers since Run last
// asked. What others move in the meantime counts too.
func (e *Engine) streams() bool {
	e.acquire()
	moved := e.count.RxPackets + e.count.TxPackets
	e.token.Store(false)
	before := e.rest.moved
	e.rest.moved = moved
	return moved-before >= streaming
}

// pause sleeps for a moment, or until the engine's next deadline. Wake ends it
// sooner.
func (e *Engine) pause(now clock.Instant) error {
	e.acquire()
	next := e.rest.next
	e.token.Store(false)
	limit := min(pause, until(now, clock.Sooner(next, now.Add(pause))))
	if limit == 0 || e.bells.any() {
		return nil
	}
	return e.port.Nap(limit)
}

// lieDown says how long Run may sleep; 0: not at all. From now on whoever
// makes the deadline earlier wakes it.
func (e *Engine) lieDown(now clock.Instant) (time.Duration, error) {
	e.acquire()
	defer e.token.Store(false)
	limit, err := e.port.Arm(until(now, e.rest.next))
	if limit != 0 {
		e.rest.alarm = e.rest.next
		e.rest.asleep.Store(true)
	}
	return limit, err
}

func (e *Engine) getUp() {
	e.acquire()
	e.rest.asleep.Store(false)
	e.token.Store(false)
}

// acquire takes the token, which whoever has it gives up soon.
func (e *Engine) acquire() {
	for !e.token.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// until is how long to sleep at now for a deadline: negative for no limit.
func until(now, next clock.Instant) time.Duration {
	if next == clock.Never {
		return -1
	}
	return max(0, next.Sub(now))
}

// Ring says that the flow's upper layer has something to transmit. It costs an
// atomic operation when the bell is already ringing. The engine's own
// goroutine is woken if it sleeps.
func (e *Engine) Ring(id FlowID) {
	if e.bells.ring(int(id.Index())) {
		e.port.Wake()
	}
}

// RingSilently is Ring for who calls Visit after it: nobody is woken.
func (e *Engine) RingSilently(id FlowID) { e.bells.ring(int(id.Index())) }
