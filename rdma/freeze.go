package rdma

import (
	"context"
	"fmt"
	"time"
)

// Freeze implements adapter.Heir. When it returns, the program holds no lock of a queue and
// changes no object.
func (l layer) Freeze(ctx context.Context) (err error) {
	a, o := l.Adapter, l.handing.Load()
	if err := a.pauseListeners(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			a.resumeListeners()
		}
	}()
	if err := o.stop(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			o.resume()
		}
	}()
	if err := a.attempts.Close(ctx); err != nil {
		return fmt.Errorf("wait for attempts to connect: %w", err)
	}
	if err = a.verbs.Close(ctx); err != nil {
		a.attempts.Open(nil)
		return fmt.Errorf("wait for calls of the program: %w", err)
	}
	if err = a.movable(); err != nil {
		a.verbs.Open(nil)
		a.attempts.Open(nil)
		return err
	}
	if err = a.hush(ctx); err != nil {
		a.verbs.Open(nil)
		a.attempts.Open(nil)
		return err
	}
	a.eachLock(func(q locker) { q.Lock() })
	return nil
}

// hush stops CQs from telling of completions, and waits until no handler runs. A handler
// runs on the goroutine of an engine and may poll, so it must not meet a lock of eachLock.
func (a *Adapter) hush(ctx context.Context) error {
	a.frozen.Store(true)
	for a.telling.Load() != 0 {
		select {
		case <-time.After(pauseEvery):
		case <-ctx.Done():
			a.speak()
			return fmt.Errorf("wait for handlers of CQs: %w", context.Cause(ctx))
		}
	}
	return nil
}

// speak ends hush. CQs tell of what has come meanwhile, and wake everybody who waits if it
// will not come here.
func (a *Adapter) speak() {
	a.frozen.Store(false)
	a.mu.Lock()
	var list []*CQ
	for c := range a.cqs {
		list = append(list, c)
	}
	a.mu.Unlock()
	for _, c := range list {
		if a.left.Load() || c.queue.Ready() || c.queue.Overrun() {
			c.news()
		}
	}
}

// locker is the lock of a queue.
type locker interface {
	Lock()
	Unlock()
}

// eachLock calls f for the locks that posters and pollers hold. No object is made or closed
// meanwhile.
func (a *Adapter) eachLock(f func(locker)) {
	a.mu.Lock()
	var list []locker
	for qp := range a.qps {
		list = append(list, &qp.sending, &qp.receiving)
	}
	for s := range a.srqs {
		list = append(list, &s.posting)
	}
	for c := range a.cqs {
		list = append(list, &c.resizing, &c.polling)
	}
	a.mu.Unlock() // an engine may need it while a lock is waited for
	for _, q := range list {
		f(q)
	}
}

// Thaw implements adapter.Heir.
func (l layer) Thaw() {
	l.release(nil)
	l.resumeListeners()
	l.handing.Load().resume()
}

// release ends Freeze. With an error, everything has left.
func (a *Adapter) release(err error) {
	a.closeFiles()
	a.left.Store(err != nil)
	a.eachLock(func(q locker) { q.Unlock() })
	a.speak()
	a.verbs.Open(err)
	a.attempts.Open(err)
}

// Left implements adapter.Heir.
func (l layer) Left() {
	a := l.Adapter
	a.release(ErrHandedOver)
	for _, x := range a.listeners() {
		x.die(ErrHandedOver)
		x.Close()
	}
}
