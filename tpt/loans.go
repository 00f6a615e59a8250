package tpt

// Loans are entries for the buffers of the commands of one iSER connection (RFC 7145): an
// upper layer lends a buffer to the peer of its queue pair for the time of a command. A
// loan of one piece of memory takes no lock, allocates nothing, and waits for nobody, as
// Bind of a window, and needs no region of that memory.
//
// The entries are regions of the queue pair. The peer reaches them by RDMA Write and Read,
// and may end a loan by a Send with Invalidate. Only the owner, one goroutine at a time,
// may call Lend, Replace, Recall and Release, and not within a step.
type Loans struct {
	table *Table
	pd    PD
	qp    uint32
	stags []STag // by slot; the key is that of the last loan
	paged []bool // by slot: the loan has a page list
}

// ReserveLoans reserves n entries for the queue pair qp of pd, all or none. They count in the
// domain's share of the table until Release. Errors: ErrPD, ErrQuota, ErrTableFull,
// ErrForeign.
func (t *Table) ReserveLoans(pd PD, qp uint32, n int) (*Loans, error) {
	l := &Loans{table: t, pd: pd, qp: qp, paged: make([]bool, n)}
	for range n {
		s, err := t.Reserve(pd, qp)
		if err != nil {
			l.Release()
			return nil, err
		}
		l.stags = append(l.stags, s)
	}
	return l, nil
}

// loanPage is the page size of a loan of scattered memory, in octets.
const loanPage = MinPageSize

// Lend makes the entry of slot i valid for memory, under another key, and returns its STag.
// Tagged offsets begin at 0. r are the rights of the peer; Lend adds local read, and local
// write if the peer may write. The slot must not be lent. If mem has several pieces, all but
// the first and the last must be multiples of 4096 octets, and Lend takes the table's lock.
// The memory stays reachable until Recall. Errors: ErrMemory, ErrPagesFull, ErrQuota.
func (l *Loans) Lend(i int, mem [][]byte, r Rights) (STag, error) {
	region := Region{PD: l.pd, Memory: mem[0], Rights: r}
	if len(mem) > 1 {
		region.Memory, region.Pages, region.PageSize = nil, mem, loanPage
	}
	if err := region.checkMemory(); err != nil {
		return 0, err
	}
	s := l.stags[i]
	e := &l.table.entries[s.Index()]
	s = NewSTag(s.Index(), s.Key()+1)
	l.stags[i] = s
	f, err := l.table.translate(s.Index(), &region)
	if err != nil {
		return 0, err
	}
	l.paged[i] = len(mem) > 1
	if f.rights = r | LocalRead; r&changing != 0 {
		f.rights |= LocalWrite
	}
	f.owner, f.pd, f.qp = l.table.owner, l.pd, l.qp
	// The entry is not valid, and no reader uses its fields: Recall has waited.
	e.fill(f)
	e.publish(e.load().next(s.Key(), KindRegion, wordValid))
	return s, nil
}

// Recall ends the loan of slot i. When it returns, no engine uses the memory, and none
// will. Recall waits for the present steps of the engines, unless ended says that the
// peer's Send with Invalidate has ended the loan: the step of that Send was the last that
// could use it.
func (l *Loans) Recall(i int, ended bool) {
	t, index := l.table, l.stags[i].Index()
	e := &t.entries[index]
	for w := e.load(); ; w = e.load() {
		if !w.valid() {
			break
		}
		if ended = false; e.swap(w, w.revoked()) {
			break
		}
	}
	if !ended {
		t.epochs.wait(t.epochs.ticket())
	}
	if t.external.drop(index); l.paged[i] {
		l.paged[i] = false
		t.mu.Lock()
		t.forget(index)
		t.mu.Unlock()
	}
}

// Replace gives the loan of slot i other memory, as long as the old, for a peer that still
// uses the loan. When it returns, no engine uses the old memory, and the STag is as valid as
// before, unless the peer ends the loan. mem must be memory that Go has allocated, because the
// entry does not tell engines that mem may fault. Replace returns false, and the loan is as
// before, if the peer has ended the loan. If the loan has several pieces, Replace takes the
// table's lock.
func (l *Loans) Replace(i int, mem []byte) bool {
	t, index := l.table, l.stags[i].Index()
	e := &t.entries[index]
	if !e.load().valid() || uint64(len(mem)) != e.length.Load() {
		return false
	}
	// An engine that looks at the entry meanwhile sees the old memory or the new, of each page,
	// and both have the same length.
	if l.paged[i] {
		t.divert(index, mem)
	} else {
		t.external.keep(index, mem)
		e.base.Store(spaceExternal << spaceShift)
	}
	for w := e.load(); ; w = e.load() {
		if !w.valid() {
			break // the caller calls Recall
		}
		if e.swap(w, w.next(w.key(), KindRegion, wordValid)) {
			break
		}
	}
	t.epochs.wait(t.epochs.ticket())
	return true
}

// Release ends all loans, and frees the entries. The connection must have ended. Release may
// be called twice.
func (l *Loans) Release() {
	for i, s := range l.stags {
		if l.paged[i] {
			l.Recall(i, false)
		}
		e := &l.table.entries[s.Index()]
		for w := e.load(); !e.swap(w, w.taken()); w = e.load() {
		}
	}
	if len(l.stags) != 0 {
		l.table.epochs.wait(l.table.epochs.ticket())
	}
	for _, s := range l.stags {
		l.table.free(s.Index())
	}
	l.stags = nil
}
