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

// rest says when an engine next needs to run, and until when Run sleeps.
type rest struct {
	next   clock.Instant // what the last step reported
	vain   int           // steps in a row that moved nothing
	asleep atomic.Bool   // Run sleeps; any goroutine may read it
	alarm  clock.Instant // Run sleeps until then
	moved  uint64        // packets moved when streams last looked; only Run uses it
}

// Progress runs commands and one step at time now, unless another goroutine does so,
// and reports when the engine next needs to run. ok is false if another goroutine holds
// the token: that goroutine does the work instead. Run does the same again and again. A
// goroutine that posts or polls calls Visit.
func (e *Engine) Progress(now clock.Instant) (next clock.Instant, ok bool) {
	return e.turn(now, true)
}

// turn implements Progress and Visit. A keeper that has found work looks again at once.
func (e *Engine) turn(now clock.Instant, keeper bool) (next clock.Instant, ok bool) {
	if !e.token.CompareAndSwap(false, true) {
		return clock.Never, false
	}
	if e.ended.Load() {
		e.token.Store(false)
		e.drain()
		return clock.Never, false
	}
	now = max(now, e.now) // another goroutine may have stepped since the caller read the clock
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
		e.port.Wake() // the sleeping Run has a later alarm
	}
	for _, tell := range heard {
		tell()
	}
	e.after()
	return next, true
}

// deliver calls Ended for the flows that have ended. The caller has the token: no later
// step of another goroutine can overtake it.
func (e *Engine) deliver() {
	if e.cfg.Ended != nil {
		for _, end := range e.ends {
			e.cfg.Ended(end)
		}
	}
	e.ends = e.ends[:0]
}

// after calls Config.After.
func (e *Engine) after() {
	if e.cfg.After != nil {
		e.cfg.After()
	}
}

// Run runs the engine until ctx ends. It has a thread of its own, spins for Config.Spin
// after it last found work, and otherwise sleeps in the port. Run is also the keeper of
// an engine whose users call Progress themselves: it sleeps without the token, and
// handles deadlines and arrivals that no user polls for.
//
// When Run returns, every flow has ended, with stream.ErrPort and the cause of ctx if
// that has one of its own. The engine cannot run again. The error is the port's; it is
// nil if ctx has ended.
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
	e.reader.Close() // nothing is left that could look up an STag
	return err
}

// loop runs the engine until ctx ends or the port fails.
func (e *Engine) loop(ctx context.Context) error {
	busy, yielded := clock.Now(), false
	for ctx.Err() == nil {
		now := clock.Now()
		next, ok := e.Progress(now)
		if sleep := e.visits.MaySleep(now); sleep != 0 {
			if err := e.sleepUntilWake(now, sleep); err != nil {
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
			if err := e.sleepShortly(now); err != nil {
				return err
			}
			yielded = false
			continue
		}
		limit, err := e.prepareSleep(now)
		if err != nil {
			return err
		}
		if limit == 0 {
			continue
		}
		if !e.doorbells.any() { // one may have rung silently while this goroutine had the token
			err = e.port.Sleep(limit)
		}
		if err != nil {
			return err
		}
		e.getUp()
	}
	return nil
}

// yield gives the processor to another thread that waits for it. Often that is the
// thread that fills our ring, and its packets are then found without a sleep and a
// wake-up. If no thread waits, yield costs a system call.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// A pause is a sleep that arrivals do not end. Waking an engine for the first packet of
// a bunch costs the other end, or the thread that carries the packets there, more than
// the packet itself. Between two ends that stream, pauses leave the bunches whole. The
// engine pauses if it has moved enough packets since the last check; a few messages
// back and forth never cause a pause.
// longer rest; a few messages back and forth never make it do so.
const (
	shortSleep = 20 * time.Microsecond // the kernel's timers add up to 50
	streaming  = 64                    // packets, both ways
)

// streams reports whether many packets have come and gone since the last call. Packets
// that other goroutines move in the meantime count too.
func (e *Engine) streams() bool {
	e.acquire()
	moved := e.count.RxPackets + e.count.TxPackets
	e.token.Store(false)
	before := e.rest.moved
	e.rest.moved = moved
	return moved-before >= streaming
}

// sleepShortly sleeps for a moment, or until the engine's next deadline. Wake ends the sleep
// earlier.
func (e *Engine) sleepShortly(now clock.Instant) error {
	e.acquire()
	next := e.rest.next
	e.token.Store(false)
	limit := min(shortSleep, until(now, clock.Sooner(next, now.Add(shortSleep))))
	if limit == 0 || e.doorbells.any() {
		return nil
	}
	return e.port.SleepUntilWake(limit)
}

// prepareSleep returns how long Run may sleep; 0 means not at all. From now on a goroutine
// that makes the deadline earlier wakes Run.
func (e *Engine) prepareSleep(now clock.Instant) (time.Duration, error) {
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

// acquire takes the token. It waits: a holder keeps the token only for a short time.
func (e *Engine) acquire() {
	for !e.token.CompareAndSwap(false, true) {
		runtime.Gosched()
	}
}

// until returns how long to sleep at now for a deadline: negative for no limit.
func until(now, next clock.Instant) time.Duration {
	if next == clock.Never {
		return -1
	}
	return max(0, next.Sub(now))
}

// Ring says that the flow's upper layer has something to transmit. It costs one atomic
// operation if the doorbell is already rung. It wakes the engine's own goroutine if
// that sleeps.
func (e *Engine) Ring(id FlowID) {
	if e.doorbells.ring(int(id.Index())) {
		e.port.Wake()
	}
}

// RingSilently rings without waking the engine. The caller must call Visit next.
func (e *Engine) RingSilently(id FlowID) { e.doorbells.ring(int(id.Index())) }
