package unit

import "sync/atomic"

// loans separate atomic commands from writes whose data the transport places in memory of the
// backend (Unit.Lend). Such a write can take long, and holds no lock. The medium is divided
// into regions, each with a counter: the low part counts the writes, the
// high part the atomic commands that run or wait. A write gets no memory of a region that
// an atomic command has claimed: its data then goes through a buffer, and Run copies it. An
// atomic command waits for the writes that were there before.
type loans struct {
	regions []atomic.Int64 // nil: the backend lends nothing
}

const (
	loanRegions = 1024 // more regions of the medium share a counter
	loanShift   = 16   // a region has 1<<loanShift octets

	oneClaim = 1 << 32 // of an atomic command in a counter
)

// region returns the counter of a region. The regions of n octets from off on have the
// numbers first to last.
func (l *loans) region(n uint64) *atomic.Int64 { return &l.regions[n%loanRegions] }

func regionsOf(off int64, n uint64) (first, last uint64) {
	return uint64(off) >> loanShift, (uint64(off) + n - 1) >> loanShift
}

// lend counts a write of n octets at off. It returns false if an atomic command has claimed
// some of them.
func (l *loans) lend(off int64, n uint64) bool {
	first, last := regionsOf(off, n)
	for r := first; r <= last; r++ {
		if l.region(r).Add(1) >= oneClaim {
			for ; r > first; r-- {
				l.region(r).Add(-1)
			}
			l.region(first).Add(-1)
			return false
		}
	}
	return true
}

// settle ends what lend has begun. It reports whether an atomic command waits.
func (l *loans) settle(off int64, n uint64) (waited bool) {
	first, last := regionsOf(off, n)
	for r := first; r <= last; r++ {
		waited = l.region(r).Add(-1) >= oneClaim || waited
	}
	return waited
}

// Claim is a claim of an atomic command to its octets of the medium.
type Claim struct {
	loans       *loans // nil: nothing to wait for
	first, last uint64
}

// Claim claims the octets of a task that must be atomic against writes into lent memory. The
// transport calls Claim before Run, and waits until Free. Run ends the claim. The transport
// must call Run, even if nobody wants the result any more. Any number of calls claim once.
func (u *Unit) Claim(t *Task) Claim {
	n := t.alone(u)
	if n == 0 || u.loans.regions == nil {
		return Claim{}
	}
	c := Claim{loans: &u.loans}
	c.first, c.last = regionsOf(u.offset(t.lba), n)
	c.last = min(c.last, c.first+loanRegions-1) // these are all
	if !t.claimed {
		t.claimed = true
		c.add(oneClaim)
	}
	return c
}

// alone returns how many octets of the medium the task must have for itself.
func (t *Task) alone(u *Unit) uint64 {
	if t.row.flags&atomically == 0 {
		return 0
	}
	if t.row.op == opSanitize {
		return u.blocks << u.shift
	}
	return u.octets(t.blocks)
}

func (c Claim) add(n int64) {
	if c.loans == nil {
		return
	}
	for r := c.first; r <= c.last; r++ {
		c.loans.region(r).Add(n)
	}
}

// Free reports whether no write has lent memory of the claimed octets. Any goroutine may
// call Free, also when the task has run.
func (c Claim) Free() bool {
	if c.loans == nil {
		return true
	}
	for r := c.first; r <= c.last; r++ {
		if c.loans.region(r).Load()%oneClaim != 0 {
			return false
		}
	}
	return true
}

// pass takes the claim of a task away. The caller ends it by add(-oneClaim).
func (u *Unit) pass(t *Task) Claim {
	if !t.claimed {
		return Claim{}
	}
	c := u.Claim(t)
	t.claimed = false
	return c
}

// Settle says that the transport places nothing any more in the memory that Lend has lent
// for a write: the write has run, or never will. Settle reports whether an atomic command
// may wait for that. Any number of calls settle once.
func (u *Unit) Settle(t *Task) (waited bool) {
	if !t.loaned {
		return false
	}
	t.loaned = false
	return u.loans.settle(u.offset(t.lba), uint64(t.Want))
}
