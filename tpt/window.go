package tpt

import (
	"errors"
	"math"
	"runtime"
)

// WindowType is the type of a memory window. The types are those of libibverbs and of
// the InfiniBand specification (volume 1, §10.6.7.2).
type WindowType uint8

const (
	// Type1 is a window of a protection domain. All queue pairs of the domain may use it.
	// A bind to other memory replaces the binding.
	Type1 WindowType = 1

	// Type2A is a window of the queue pair that has bound it. It must be unbound or
	// invalidated before it is bound again.
	Type2A WindowType = 2

	// Type2B is a window like Type2A. In addition the owner of the queue pair must not
	// destroy the queue pair while the window is bound. The table checks the queue pair
	// and the protection domain of both types, so it does not tell them apart.
	Type2B WindowType = 3
)

var windowTypes = [...]string{Type1: "1", Type2A: "2A", Type2B: "2B"}

// String returns the type's name, or "" for an entry that is no window.
func (k WindowType) String() string {
	if int(k) < len(windowTypes) {
		return windowTypes[k]
	}
	return "unknown"
}

// Binding describes what Bind does to a window.
type Binding struct {
	STag      STag   // the next STag of the window: its index names the window, and the window gets its key
	Region    STag   // the region of the memory
	PD        PD     // the protection domain of the queue pair
	QP        uint32 // the number of the queue pair
	TO        uint64 // tagged offset of the first octet in the region
	Len       uint64 // octets; 0 unbinds the window
	Rights    Rights // remote rights of the window
	ZeroBased bool   // the tagged offsets of the window begin at 0; otherwise they are those of the region
	OneTouch  bool   // the first message that uses the window ends the binding
}

// needs returns the rights that the region must give. A peer may write through a window
// only where this end may write. The region needs no remote rights, so that its memory
// can be accessible through windows only.
func (b *Binding) needs() Rights {
	if b.Rights&changing != 0 {
		return Bind | LocalWrite
	}
	return Bind
}

// AllocWindow allocates a window in a protection domain. The window is not bound, so
// that its STag permits no access. Deregister deallocates the window. Errors: ErrPD,
// ErrQuota, ErrTableFull, ErrForeign.
func (t *Table) AllocWindow(pd PD, k WindowType) (STag, error) {
	if k < Type1 || k > Type2B {
		return 0, fail(ErrRights, "allocate a window of type %d: want type 1, 2A or 2B", uint8(k))
	}
	e, stag, err := t.lock(pd, KindWindow)
	if err != nil {
		return 0, err
	}
	e.fill(fields{owner: t.owner, pd: pd, window: k})
	e.publish(e.load().next(stag.Key(), KindWindow, 0))
	return stag, nil
}

// DeallocWindow deregisters the window at the index of s, whatever the window's key is
// now. Only the owner of the window may call it, once. Errors: ErrSTag, ErrPD.
func (t *Table) DeallocWindow(s STag, pd PD) error {
	for e, ok := t.at(s); ok; {
		w := e.load()
		if w.kind() != KindWindow {
			break
		}
		err := t.Deregister(NewSTag(s.Index(), w.key()), pd)
		if !errors.Is(err, ErrSTag) {
			return err
		}
		runtime.Gosched() // an engine is binding the window
	}
	return fail(ErrSTag, "deallocate window %v: there is none", s)
}

// NextSTag returns an STag for the next binding of the window s. The index is the same.
// The key is random and differs from the key of s.
func (t *Table) NextSTag(s STag) STag {
	t.mu.Lock()
	defer t.mu.Unlock()
	return NewSTag(s.Index(), t.slots.otherKey(s.Key()))
}

// Bind binds a window to octets of a region, or unbinds the window if b.Len is 0. From
// then on the window has the STag b.STag. An old STag with another key permits no access
// any more, but other engines may still access the old memory until Passed returns true
// for the ticket. Bind never waits, locks or allocates, so that an engine may call it.
//
// If Bind refuses, region and window stay as they were. The faults are, in the order of
// the checks:
//
//   - BadSTag: there is no such window, or no such valid region.
//   - WrongPD: window or region are of another protection domain, or are bound to
//     another queue pair.
//   - Bound: the window is of type 2 and already bound, or the region has 65535 windows.
//   - NoRight: Rights has other than remote rights; or the region does not allow windows
//     (Bind); or the window would permit changes, and the region has no local write.
//   - Wrap, OutOfBounds: the octets are not wholly within the region.
func (t *Table) Bind(b *Binding) (Ticket, Fault) {
	e, ok := t.at(b.STag)
	f := BadSTag
	for ok {
		w := e.load()
		parent, k := e.parent.Load(), e.window()
		if f = e.bindable(w, k, b); !e.unchanged(w) {
			f = BadSTag
			continue
		}
		if f != OK {
			break
		}
		next := fields{owner: t.owner, pd: b.PD, window: k}
		if b.Len != 0 {
			if next, f = t.grant(b, k); f != OK {
				break
			}
		}
		if e.swap(w, w.next(b.STag.Key(), KindWindow, wordBusy)) {
			return t.rebind(e, w, parent, next), OK
		}
		t.ungrant(next.parent)
	}
	t.refusals[f].Add(1)
	return 0, f
}

// bindable returns OK if the queue pair of b may bind the window with state w and type
// k, otherwise the fault.
func (e *entry) bindable(w word, k WindowType, b *Binding) Fault {
	switch {
	case w.kind() != KindWindow || w.busy():
		return BadSTag
	case !e.belongs(w, b.PD, b.QP):
		return WrongPD
	case b.Len != 0 && k != Type1 && w.valid():
		return Bound
	case b.Rights&^(remote|RemoteInvalidate) != 0:
		return NoRight
	}
	return OK
}

// grant adds one to the windows of the region of b, and returns the fields of the
// window. The region stays registered until ungrant.
func (t *Table) grant(b *Binding, k WindowType) (fields, Fault) {
	e, ok := t.at(b.Region)
	for ok {
		w := e.load()
		next, f := e.part(w, b)
		if f == OK && w.windows() == maxWindows {
			f = Bound
		}
		switch {
		case !e.unchanged(w):
		case f != OK:
			return fields{}, f
		case e.swap(w, w+1<<wordWindows):
			next.parent, next.window = b.Region.Index(), k
			if k != Type1 {
				next.qp = b.QP
			}
			return next, OK
		}
	}
	return fields{}, BadSTag
}

// part checks the region with state w, and returns the fields of a window for the
// octets of b. A window of a region that is limited to a queue pair is limited, too.
func (e *entry) part(w word, b *Binding) (fields, Fault) {
	start, length := e.start.Load(), e.length.Load()
	switch {
	case w.key() != b.Region.Key() || !w.valid() || w.kind() != KindRegion:
		return fields{}, BadSTag
	case !e.belongs(w, b.PD, b.QP):
		return fields{}, WrongPD
	case e.rights()&b.needs() != b.needs():
		return fields{}, NoRight
	case b.TO > math.MaxUint64-(b.Len-1):
		return fields{}, Wrap
	case b.TO < start || !inside(b.TO-start, b.Len, length):
		return fields{}, OutOfBounds
	}
	f := e.from(b.TO - start)
	f.start, f.length, f.owner = b.TO, b.Len, e.owner()
	f.pd, f.qp, f.rights, f.oneTouch = b.PD, e.qp.Load(), b.Rights, b.OneTouch
	if b.ZeroBased {
		f.start = 0
	}
	return f, OK
}

// rebind writes the next binding of a window that the caller has locked. w is the state
// before, and parent the index of the region that the window was bound to.
func (t *Table) rebind(e *entry, w word, parent uint32, next fields) Ticket {
	e.fill(next)
	taken, flags := e.load(), word(0)
	if next.parent != 0 {
		flags = wordValid
	}
	e.publish(taken.next(taken.key(), KindWindow, flags))
	if !w.valid() {
		return 0
	}
	t.ungrant(parent)
	return t.epochs.ticket()
}

// unbound ends the binding of an entry that has lost validity, if the entry is a
// window. w is the state before, and parent the entry's field. A window counts as bound
// exactly while it is valid.
func (t *Table) unbound(w word, parent uint32) {
	if w.kind() == KindWindow && w.valid() {
		t.ungrant(parent)
	}
}

// ungrant removes one from the windows of the region at the index.
func (t *Table) ungrant(index uint32) {
	e, ok := t.at(NewSTag(index, 0))
	for ok {
		if w := e.load(); w.windows() == 0 || e.swap(w, w-1<<wordWindows) {
			return
		}
	}
}
