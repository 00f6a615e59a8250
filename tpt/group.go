package tpt

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
)

// Group is the part of a process in a table that several processes share. Each process, a
// member, hands out the entries of a range of its own, and records its number (Config.Owner)
// in them. Every member checks accesses to the entries of all members.
//
// An access to memory of another member succeeds only after Attach. Before, Check returns
// Unresolved, and changes nothing.
//
// The members share the epochs: an invalidation waits for the engines of all members.
//
// The numbers of the protection domains decide which memory one member shares with the
// others. NewPD gives numbers that no other member gives, so that nobody else passes the
// check of the domain. JoinPD gives the number that the caller chooses, SharedPD and a
// number that the members agree on.
type Group struct {
	Member  int    // the number of the range: 0 to Members-1
	Members int    // the number of ranges, a power of two up to MaxMembers
	Epochs  []byte // memory of EpochsLen octets that the members share, page aligned

	// Pause sleeps for a short time. Verbs call it while engines of other members are in a
	// step. nil means runtime.Gosched.
	Pause func()
}

// MaxMembers is the largest number of members of a group.
const MaxMembers = 16

// SharedPD is the bit of the numbers of protection domains that JoinPD takes.
const SharedPD PD = 1 << 31

const (
	memberBits  = 4 // of the number of a protection domain, below the bit SharedPD
	memberShift = 31 - memberBits
)

// plain has the bits of the field translation in which a direct entry of this process
// equals Table.mine.
const plain = translationKind | 0xffff<<translationOwner

// spaceMember is the space of a Memo whose memory is another member's. No entry has it.
const spaceMember = 2

func (g *Group) check(c *Config) error {
	switch {
	case g == nil:
		return nil
	case g.Members < 1 || g.Members > MaxMembers || bits.OnesCount(uint(g.Members)) != 1:
		return fmt.Errorf("a group of %d members: want a power of two, 1 to %d", g.Members, MaxMembers)
	case g.Member < 0 || g.Member >= g.Members:
		return fmt.Errorf("member %d of a group of %d: want 0 to %d", g.Member, g.Members, g.Members-1)
	case c.Memory == nil:
		return errors.New("a group without memory: give the table the memory that the members share")
	case c.Owner == 0:
		return errors.New("a member of a group without a number: set Owner")
	case c.Entries/uint32(g.Members) < 2:
		return fmt.Errorf("a table of %d entries for %d members: want at least two for each", c.Entries, g.Members)
	case len(g.Epochs) != EpochsLen:
		return fmt.Errorf("%d octets of memory for the epochs of a group: give it %d", len(g.Epochs), EpochsLen)
	}
	_, err := slotsAt(g.Epochs)
	return err
}

// epochs returns the shared epochs, or nil without a group.
func (g *Group) epochs() *memberEpochs {
	if g == nil {
		return nil
	}
	all, _ := slotsAt(g.Epochs) // check has tried it
	p := &memberEpochs{now: &all[0].epoch, self: g.Member, pause: g.Pause}
	if p.pause == nil {
		p.pause = runtime.Gosched
	}
	for i := range p.of {
		p.of[i].used = &all[1+i].epoch
		p.of[i].slots = all[1+MaxMembers+i*memberSlots:][:memberSlots]
	}
	p.of[g.Member].clear()
	return p
}

// enterGroup gives the table its part of a group.
func (t *Table) enterGroup(g *Group) {
	n := uint32(len(t.entries) / g.Members)
	t.first = uint32(g.Member) * n
	t.own = t.entries[t.first:][:n]
	t.spaces = make(spaces, g.Members)
	t.pdBase, t.pdMask = PD(g.Member)<<memberShift, 1<<memberShift-1
}

// JoinPD makes the protection domain of the number pd known, which has the bit SharedPD.
// Regions and queue pairs of the domain are as those of NewPD, and peers of a queue pair of
// any member can use the regions. FreePD frees the domain in this process. The error is
// ErrPD if the process has joined it already, or if the table is in no group.
func (t *Table) JoinPD(pd PD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.spaces == nil:
		return fail(ErrPD, "join protection domain %d: the table is in no group", pd)
	case pd&SharedPD == 0:
		return fail(ErrPD, "join protection domain %d: its number is not one of the group's", pd)
	case t.pds[pd] != nil:
		return fail(ErrPD, "join protection domain %d: this process has joined it already: close that one, or use it", pd)
	}
	t.pds[pd] = &domain{}
	return nil
}

// space is the memory of another member.
type space struct {
	owner  uint16 // number of the member
	memory []byte
}

// spaces are the memories of the other members, by the number of their range.
type spaces []atomic.Pointer[space]

// Attach makes memory the region heap of the member with this range and number. From then
// on Check finds the memory of the member's regions in its heap. The memory must stay mapped
// until Detach returns.
func (t *Table) Attach(member int, owner uint16, memory []byte) {
	t.spaces[member].Store(&space{owner, memory})
}

// Detach ends the use of the memory that Attach gave. When it returns, no engine of this
// process accesses the memory, and none will. The caller must not be within a step of an
// engine. Detach does not wait for other members.
func (t *Table) Detach(member int) {
	t.spaces[member].Store(nil)
	k := t.epochs.ticket()
	t.epochs.now.CompareAndSwap(uint64(k)-1, uint64(k)) // begin the epoch, unless another has
	for !t.epochs.passedHere(k) {
		t.epochs.members.pause()
	}
}

// Attached returns the number of the member whose memory Attach gave for the range, or 0.
func (t *Table) Attached(member int) uint16 {
	if s := t.spaces[member].Load(); s != nil {
		return s.owner
	}
	return 0
}

// RangeOf returns the range of the group that s is in. ok is false if the table is in no
// group or the index is too large.
func (t *Table) RangeOf(s STag) (member int, ok bool) {
	if t.spaces == nil || s.Index() >= uint32(len(t.entries)) {
		return 0, false
	}
	return int(s.Index()) / len(t.own), true
}

// Unresolved counts an access that is refused for good because its memory is not there.
func (t *Table) Unresolved() { t.refusals[Unresolved].Add(1) }

// Abandon ends all entries of this process for the other members. When it returns, no
// engine of any member accesses their memory. Only Close of Readers may be called after it.
func (t *Table) Abandon() {
	for i := range t.own {
		e := &t.own[i]
		for w := e.load(); w.valid() && !e.swap(w, w.taken()); w = e.load() {
		}
	}
	t.epochs.wait(t.epochs.ticket())
}

// Foreign reads the entry of another member at the index of s, as Entry does. ok is false if
// it is not valid, or if s has another key.
func (t *Table) Foreign(s STag) (info Info, ok bool) {
	if member, ok := t.RangeOf(s); !ok || member == t.epochs.members.self {
		return Info{}, false
	}
	info, ok = t.entries[s.Index()].read(s.Index())
	return info, ok && info.Valid && info.STag == s
}

// Bury frees the epochs of a member whose process has ended, perhaps within a step. Only a
// caller that knows that the process has ended may call it.
func (t *Table) Bury(member int) { t.epochs.members.of[member].clear() }

// elsewhere finds the octets of an entry that is not a direct entry of this process. For
// pages of this process, where is zero.
func (m *Memo) elsewhere(t *Table, a *Access) (where memory, f Fault) {
	if (m.translation^t.mine)>>translationOwner == 0 {
		return memory{}, OK
	}
	member, ok := t.RangeOf(m.stag)
	if !ok {
		return memory{}, BadSTag // another process has written a wrong number into the entry
	}
	if m.qp != 0 {
		return memory{}, WrongPD // it is bound to a queue pair of the other process
	}
	if a.Right&remote == 0 {
		return memory{}, BadSTag // a work request: it can use only entries of its own process
	}
	kind, off := place(m.base)
	s := t.spaces[member].Load()
	if s == nil || uint32(s.owner) != m.translation>>translationOwner || !m.direct() || kind == spaceExternal || m.touch {
		return memory{}, Unresolved
	}
	where = memory{first: firstOf(s.memory), off: off, size: m.length}
	if where.first == nil || !inside(off, m.length, uint64(len(s.memory))) {
		return memory{}, Unresolved
	}
	m.base = spaceMember<<spaceShift | off // External and prove look at the space
	return where, OK
}

// others returns the region of another member with the index of s, for an invalidation by
// a peer. ok is false unless it is a region that is bound to no queue pair.
func (t *Table) others(s STag) (e *entry, ok bool) {
	i := s.Index()
	if i >= uint32(len(t.entries)) {
		e, _ = t.at(s)
		return e, false
	}
	e = &t.entries[i]
	return e, i%uint32(len(t.own)) != 0 && e.load().kind() == KindRegion && e.qp.Load() == 0
}

// EpochsLen is the size of the shared epochs of a group, in octets.
const EpochsLen = slotLen * (1 + MaxMembers + MaxMembers*memberSlots)

const (
	slotLen     = 64
	memberSlots = 256 // Readers of a member that can be in a step at a time

	// commonReserve is how many slots of a member are left to shared Readers.
	commonReserve = 64
)

// memberEpochs are the epochs that the members of a group share. The memory has first the
// present epoch, then for each member the number of its slots, then the slots.
type memberEpochs struct {
	now   *atomic.Uint64
	self  int
	pause func()
	of    [MaxMembers]memberSlotsOf
}

// memberSlotsOf are the slots of one member.
type memberSlotsOf struct {
	used  *atomic.Uint64 // number of slots that have ever been used
	slots []slot
}

// newSlot returns the next slot of this member, or nil if fewer than reserve are left. The
// caller must hold joining.
func (p *memberEpochs) newSlot(reserve int) *slot {
	own := &p.of[p.self]
	n := own.count()
	if n >= memberSlots-reserve {
		return nil
	}
	// A member that reads the old number begins to do so before this Reader's first Enter.
	// The Reader then sees everything that the member has invalidated.
	own.used.Store(uint64(n) + 1)
	return &own.slots[n]
}

// count returns the number of used slots. Another process may have written any number.
func (o *memberSlotsOf) count() int { return int(min(o.used.Load(), memberSlots)) }

// clear takes the member out of all steps.
func (o *memberSlotsOf) clear() {
	for i := range o.slots {
		o.slots[i].epoch.Store(0)
	}
	o.used.Store(0)
}

// passed reports whether k has passed for the Readers of the other members.
func (p *memberEpochs) passed(k Ticket) bool {
	for i := range p.of {
		if i == p.self {
			continue
		}
		o := &p.of[i]
		for j := range o.count() {
			if in := o.slots[j].epoch.Load(); in != 0 && in < uint64(k) {
				return false
			}
		}
	}
	return true
}
