// Package signal carries news out of a step. Protocol machines may not wake
// anybody while they step; they raise a signal, and whoever ran the step
// delivers what was raised when the step is over.
//
//	rdmap (in Step)  -> Board.Raise       a completion for somebody who waits
//	engine, after it -> Board.Deliver     Fire runs, and may wake or log
package signal

import "sync/atomic"

// Signal is one piece of news: that something has happened to its owner. It
// says no more; Fire looks for itself. The zero Signal with a Fire works.
type Signal struct {
	// Fire runs on the goroutine that delivers. It must not block.
	Fire func()

	raised atomic.Bool
	next   *Signal // owned by the board while raised
}

// Board collects raised signals. Any goroutine may raise and deliver; none of
// it blocks, locks or allocates. The zero Board works.
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

// Deliver fires everything that was raised, once each. A signal that is raised
// again meanwhile fires again, in this call or in the next.
func (b *Board) Deliver() {
	if b.head.Load() == nil {
		return
	}
	for s := b.head.Swap(nil); s != nil; {
		next := s.next
		s.raised.Store(false) // from now on it can be raised again, and next belongs to another list
		s.Fire()
		s = next
	}
}
