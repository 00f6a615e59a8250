package tap

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// MaxRings is how many captures can read one engine's packets at a time.
const MaxRings = 8

// ErrTooMany is returned by Add if the List has MaxRings already.
var ErrTooMany = errors.New("too many captures at a time")

// List holds the rings that get an engine's packets. The zero List is empty. Any
// goroutine may add and remove rings. The engine reads the list once per step.
type List struct {
	rings atomic.Pointer[[]*Ring] // the slice is copied on write; nil: no rings
}

// Rings returns the current rings. The caller must not change the slice.
func (l *List) Rings() []*Ring {
	if p := l.rings.Load(); p != nil {
		return *p
	}
	return nil
}

// Add adds r, or returns ErrTooMany.
func (l *List) Add(r *Ring) error {
	for {
		old := l.rings.Load()
		var rings []*Ring
		if old != nil {
			rings = *old
		}
		if len(rings) == MaxRings {
			return fmt.Errorf("%w: %d run already, end one first", ErrTooMany, MaxRings)
		}
		rings = append(slices.Clip(rings), r)
		if l.rings.CompareAndSwap(old, &rings) {
			return nil
		}
	}
}

// Remove removes r. A current step may still put packets into r after Remove.
func (l *List) Remove(r *Ring) {
	for {
		old := l.rings.Load()
		if old == nil {
			return
		}
		var left *[]*Ring
		if rings := slices.DeleteFunc(slices.Clone(*old), func(x *Ring) bool { return x == r }); len(rings) != 0 {
			left = &rings
		}
		if l.rings.CompareAndSwap(old, left) {
			return
		}
	}
}
