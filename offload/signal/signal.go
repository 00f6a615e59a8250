// Package signal delays notifications until after a step. Protocol machines must
// not wake goroutines during a step. They raise a signal, and the goroutine that
// ran the step delivers the raised signals after it.
//
//	rdmap (in Step)  -> Board.Raise       a completion that a program waits for
//	engine, after it -> Board.Deliver     Fire runs, and may wake or log
package signal

import "sync/atomic"

// Signal notifies of an event at its owner. It carries no data: Fire reads the
// owner's state. The zero Signal with a Fire works.
type Signal struct {
	// Fire runs on the goroutine that calls Deliver. It must not block.
	Fire func()

	raised atomic.Bool
	next   *Signal // owned by the board while raised
}

// Board collects raised signals. Any goroutine may raise and deliver. Raise and
// Deliver do not block, lock or allocate. The zero Board works.
type Board struct {
	head atomic.Pointer[Signal]
}

// Raise puts s on the board, unless it is there already.
func (b *Board) Raise(s *Signal) {
	if !s.raised.CompareAndSwap(false, true) {
		return
	}
	for {
		old := b.head.Load()
		s.next = old
		if b.head.CompareAndSwap(old, s) {
			return
		}
	}
}

// Deliver calls Fire of every raised signal once. A signal that is raised again
// during Deliver fires again, at the latest in the next call.
func (b *Board) Deliver() {
	if b.head.Load() == nil {
		return
	}
	for s := b.head.Swap(nil); s != nil; {
		next := s.next
		s.raised.Store(false) // from now on Raise may put s on another list and change s.next
		s.Fire()
		s = next
	}
}
