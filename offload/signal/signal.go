// Package signal delays notifications until after a step. Protocol machines must not
// wake goroutines during a step. Instead, they raise a signal. The goroutine that ran
// the step delivers the raised signals after the step.
//
//	rdmap (in Step)  -> Board.Raise       a completion that a program waits for
//	engine, after it -> Board.Deliver     Fire runs, and may wake or log
package signal

import "sync/atomic"

// Signal notifies its owner of an event. A Signal carries no data: Fire reads the state
// of the owner. The zero Signal with a Fire works.
type Signal struct {
	// Fire runs on the goroutine that calls Deliver. Fire must not block.
	Fire func()

	raised atomic.Bool
	next   *Signal // the next signal of the board's list while this one is raised; owned by the board
}

// Board collects raised signals. Any goroutine may call Raise and Deliver. They do not
// block, lock or allocate. The zero Board works.
type Board struct {
	head atomic.Pointer[Signal]
}

// Raise puts s on the board, unless s is on the board already.
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

// Deliver calls Fire once for each raised signal. A signal that is raised again during
// Deliver fires again, at the latest in the next call.
func (b *Board) Deliver() {
	if b.head.Load() == nil {
		return
	}
	for s := b.head.Swap(nil); s != nil; {
		next := s.next
		s.raised.Store(false) // from here on, Raise may put s on another list and change s.next
		s.Fire()
		s = next
	}
}
