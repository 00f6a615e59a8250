package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/offload/clock"
)

// rest says when an engine must run next, and until when Run sleeps.
type rest struct {
	next   clock.Instant // result of the last step
	vain   int           // number of steps in a row that moved nothing
	asleep atomic.Bool   // Run sleeps; any goroutine may read it
	alarm  clock.Instant // time at which the current sleep of Run ends
	plain  int           // number of sleeps without a yield before them that are left; only Run uses it
	yields uint64        // packets moved when a yield was last thought about; only Run uses it
	moved  uint64        // packets moved when streams was last called; only Run uses it
	bells  bell.Set      // bells of other processes, which the goroutine of Run serves; any goroutine may change it
}

// Progress runs commands and one step at time now. Progress returns when the engine
// must run next. ok is false if another goroutine holds the token. That goroutine then
// does the work. Run calls the same code in a loop. A goroutine that posts or polls
// calls Visit.
func (e *Engine) Progress(now clock.Instant) (next clock.Instant, ok bool) {
	return e.turn(now, true)
}

// turn is the common part of Progress and Visit. A keeper that has found work looks for
// more at once.
func (e *Engine) turn(now clock.Instant, keeper bool) (next clock.Instant, ok bool) {
	if !e.token.CompareAndSwap(false, true) {
		return clock.Never, false
	}
	if e.ended.Load() {
		e.token.Store(false)
		e.drain() // the caller may have rung the doorbell of a connection that has left this engine
		return clock.Never, false
	}
	now = max(now, e.now) // another goroutine may have stepped since the caller read the clock
	e.now = now
	e.reader.Enter() // must come before commands, because commands call upper layers too
	e.cmds.runAll()
	next = e.Step(now)
	if e.worked && keeper {
		next = now // there may be more work
	}
	e.rest.next = next
	early := next != clock.Never && e.rest.asleep.Load() && (e.rest.alarm == clock.Never || next < e.rest.alarm)
	heard := e.takeNews()
	e.reader.Leave()
	e.deliver()
	e.token.Store(false)
	if early {
		e.port.Wake() // Run sleeps past next; Wake makes Run compute the time again
	}
	for _, tell := range heard {
		tell()
	}
	e.after()
	return next, true
}

// deliver calls Ended for the flows that have ended. The caller holds the token, so
// that no later step of another goroutine overtakes deliver.
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

// Run runs the engine until ctx ends. Run has a thread of its own. After Run last found
// work, it looks for more work for the time Config.Spin. Then Run sleeps in the port.
// Run is also the keeper of an engine whose users call Progress themselves. The keeper
// sleeps without the token. The keeper handles deadlines, and arrivals that no user
// polls for.
//
// When Run returns, every flow has ended with stream.ErrPort and, if ctx has a cause of
// its own, that cause. The engine cannot run again. Run returns the error of the port.
// Run returns nil if ctx has ended. If the port fails and Config.Failed returns true, Run
// stops the steps and keeps the connections until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(e.stopped)
	defer context.AfterFunc(ctx, e.port.Wake)()
	e.acquire()
	e.tx.sums = e.port.Limits().Sums
	e.token.Store(false)
	err := e.loop(ctx)
	e.rest.bells.End()
	if err != nil && e.cfg.Failed != nil && e.cfg.Failed(err) {
		e.halt()
		e.keepHalted(ctx)
	}
	why := err
	if cause := context.Cause(ctx); why == nil && !errors.Is(cause, context.Canceled) {
		why = cause
	}
	e.endAll(why)
	e.reader.Close() // no upper layer is left that could look up an STag
	return err
}

// loop runs the engine until ctx ends or the port fails.
func (e *Engine) loop(ctx context.Context) error {
	busy, yielded := clock.Now(), false
	for ctx.Err() == nil {
		if e.rest.bells.Some() {
			e.rest.bells.Look()
		}
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
			yielded = true
			if e.mayYield() {
				yield()
				e.yielded(clock.Now().Sub(now))
				continue
			}
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
		if e.mayWait() { // a doorbell may have rung silently while this goroutine had the token
			err = e.port.Sleep(limit)
		}
		if err != nil {
			return err
		}
		e.getUp()
	}
	return nil
}

// yield gives the processor to another thread that waits for it. Often that thread
// fills the receive ring. The engine then finds the packets without a sleep and a
// wake-up. If no thread waits, yield costs a system call.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// A program that polls memory makes no system call. If the engine yields to such a program, the
// program keeps the processor for a whole slice, and the frame that it polls for waits. The kernel
// wakes a sleeping engine at once. After a long yield, an engine that serves other programs
// therefore sleeps without a yield for a while. Streams go on with yields, which keep bursts whole.
const (
	longYield = 200 * time.Microsecond // a switch to a thread that yields, and back, takes a few µs
	noYields  = 1000                   // number of sleeps without a yield after a long one
)

// mayYield reports whether Run yields before it sleeps.
func (e *Engine) mayYield() bool {
	if e.rest.plain == 0 {
		return true
	}
	if e.rest.plain--; e.movesMany(&e.rest.yields) {
		e.rest.plain = 0
	}
	return e.rest.plain == 0
}

// yielded takes the time of a yield into account.
func (e *Engine) yielded(took time.Duration) {
	if took > longYield && e.rest.bells.Some() && !e.movesMany(&e.rest.yields) {
		e.rest.plain = noYields
	}
}

// A short sleep does not end when frames arrive. Waking an engine for the first packet
// of a burst costs the other end, or the thread that carries the packets, more than the
// packet itself. Between two ends that stream, short sleeps keep the bursts whole. Run
// takes a short sleep if the engine has moved enough packets since the last check. A
// few messages back and forth are not enough packets.
const (
	shortSleep = 20 * time.Microsecond // the kernel's timers add up to 50 µs
	streaming  = 64                    // number of packets in both directions
)

// streams reports whether many packets have been received and sent since the last call.
// Packets that other goroutines move in the meantime count too.
func (e *Engine) streams() bool { return e.movesMany(&e.rest.moved) }

// movesMany reports whether many packets have been received and sent since the last call with the
// same mark.
func (e *Engine) movesMany(mark *uint64) bool {
	e.acquire()
	moved := e.count.RxPackets + e.count.TxPackets
	e.token.Store(false)
	before := *mark
	*mark = moved
	return moved-before >= streaming
}

// sleepShortly sleeps for shortSleep, or until the engine's next deadline. Wake ends
// the sleep earlier.
func (e *Engine) sleepShortly(now clock.Instant) error {
	e.acquire()
	next := e.rest.next
	e.token.Store(false)
	limit := min(shortSleep, until(now, clock.Sooner(next, now.Add(shortSleep))))
	if limit == 0 || !e.mayWait() {
		return nil
	}
	defer e.upAgain()
	return e.port.SleepUntilWake(limit)
}

// prepareSleep returns how long Run may sleep. 0 means not at all. After the call, a
// goroutine that makes the deadline earlier wakes Run.
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

// getUp says that Run does not sleep any more.
func (e *Engine) getUp() {
	e.upAgain()
	e.acquire()
	e.rest.asleep.Store(false)
	e.token.Store(false)
}

// Tries of acquire between two ways of waiting.
const (
	triesInARow  = 256 // before the thread gives its processor away
	triesOfYield = 16  // before the goroutine gives its thread away
)

// acquire takes the token. acquire may spin, because a holder keeps the token only for
// a short time. A visitor that polls without pause frees the token for a fraction of a
// microsecond at a time, so that many tries in a row find it soonest. The goroutine of
// Run is locked to its thread: runtime.Gosched would stop the thread and start another
// one, which costs the visitors more time than the tries do.
func (e *Engine) acquire() {
	for {
		for range triesOfYield {
			for range triesInARow {
				if !e.token.Load() && e.token.CompareAndSwap(false, true) {
					return
				}
			}
			yield()
		}
		runtime.Gosched() // the holder may be a goroutine that waits for a thread
	}
}

// until returns how long to sleep at time now for the deadline next. A negative result
// means no limit.
func until(now, next clock.Instant) time.Duration {
	if next == clock.Never {
		return -1
	}
	return max(0, next.Sub(now))
}

// Ring tells the engine that the flow's upper layer has something to transmit. If the
// doorbell has already rung, Ring costs one atomic operation. Ring wakes the engine's
// own goroutine if it sleeps.
func (e *Engine) Ring(id FlowID) {
	if e.doorbells.ring(int(id.Index())) {
		e.wake()
	}
}

// RingSilently rings without waking the engine. The caller must call Visit next.
func (e *Engine) RingSilently(id FlowID) { e.doorbells.ring(int(id.Index())) }
