package tcp

import (
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
)

// This file handles the out-of-order octets of the inbox.

// hold stores the octets d, which lie behind a hole. hold reports whether it keeps f.
// hold does not store octets again that are already held. why is DropDuplicate if all
// of d is already held.
func (b *inbox) hold(s seq.Num, d []byte, f port.Frame) (kept bool, why Drop) {
	at := b.behind(s)
	begin := s
	if at > 0 {
		if prev := &b.ooo[at-1]; prev.end().After(s) {
			over := int(s.Until(prev.end()))
			if over >= len(d) {
				b.duplicate(s, s.Add(seq.Len(len(d))))
				b.note(s)
				return false, DropDuplicate
			}
			b.duplicate(s, prev.end())
			d, s = d[over:], s.Add(seq.Len(over))
		}
	}
	d = b.trimAgainst(at, s, d)
	if len(d) == 0 {
		b.note(s)
		return false, DropDuplicate
	}
	return b.insert(at, s, d, f, s == begin)
}

// behind returns the index at which to insert a run that begins at s. Every run before
// that index begins at or before s.
func (b *inbox) behind(s seq.Num) int {
	i := len(b.ooo)
	for i > 0 && b.ooo[i-1].seq.After(s) {
		i--
	}
	return i
}

// trimAgainst makes d, which begins at s, disjoint from the runs from index at on.
// trimAgainst removes runs that d covers. trimAgainst cuts d where the next run begins.
func (b *inbox) trimAgainst(at int, s seq.Num, d []byte) []byte {
	end := s.Add(seq.Len(len(d)))
	gone := at
	for gone < len(b.ooo) && b.ooo[gone].end().AtOrBefore(end) {
		b.duplicate(b.ooo[gone].seq, b.ooo[gone].end())
		b.releaseAhead(&b.ooo[gone])
		gone++
	}
	b.cut(at, gone)
	if at < len(b.ooo) && b.ooo[at].seq.Before(end) {
		b.duplicate(b.ooo[at].seq, end)
		d = d[:s.Until(b.ooo[at].seq)]
	}
	return d
}

// insert puts d between the runs at-1 and at, which must not overlap d. whole says that d
// begins with the first octet of a segment.
func (b *inbox) insert(at int, s seq.Num, d []byte, f port.Frame, whole bool) (kept bool, why Drop) {
	full := b.full(b.share())
	if at > 0 && (full || len(d) <= small) {
		if prev := &b.ooo[at-1]; prev.end() == s && prev.room() >= len(d) {
			prev.absorb(d)
			b.note(s)
			return false, DropNone
		}
	}
	h := held{seq: s, data: d, frame: f}
	if full || len(b.ooo) >= b.max {
		if h, full = b.copied(s, d); !full {
			return false, DropReorderShare
		}
		b.aheadSlabs++
	} else {
		b.aheadFrames++
	}
	if b.looks {
		h.fresh, h.whole = true, whole
		b.fresh++
	}
	b.roomAhead()
	b.ooo = append(b.ooo, held{})
	copy(b.ooo[at+1:], b.ooo[at:])
	b.ooo[at] = h
	b.note(s)
	return h.slab == 0, DropNone
}

// releaseAhead releases the memory of an out-of-order run.
func (b *inbox) releaseAhead(h *held) {
	b.seen(h)
	if h.slab != 0 {
		b.mem.Return(h.slab)
		b.aheadSlabs--
		return
	}
	b.mem.Release(h.frame)
	b.aheadFrames--
}

// seen marks h as not fresh.
func (b *inbox) seen(h *held) {
	if h.fresh {
		h.fresh = false
		b.fresh--
	}
}

// nextFresh returns a run that is fresh, or nil.
func (b *inbox) nextFresh() *held {
	for i := len(b.ooo) - 1; b.fresh > 0 && i >= 0; i-- {
		if h := &b.ooo[i]; h.fresh {
			b.seen(h)
			return h
		}
	}
	return nil
}

// roomAhead makes room for one more out-of-order run.
func (b *inbox) roomAhead() {
	if len(b.ooo) < cap(b.ooo) {
		return
	}
	list := b.shelf.longer(cap(b.ooo), uint32(b.max))
	n := copy(list, b.ooo)
	clear(b.ooo)
	b.shelf.back(b.ooo[:cap(b.ooo)])
	b.ooo = list[:n]
}

// cut removes the runs [from, to). The memory of these runs must already have another
// owner.
func (b *inbox) cut(from, to int) {
	if from == to {
		return
	}
	n := copy(b.ooo[from:], b.ooo[to:])
	clear(b.ooo[from+n:])
	b.ooo = b.ooo[:from+n]
	if len(b.ooo) == 0 {
		b.shelf.back(b.ooo[:cap(b.ooo)])
		b.ooo = nil
	}
}

// evict drops the out-of-order run with the highest sequence number. evict reports
// whether the run was in a slab. Even if the peer has got a SACK for the run, the peer
// must keep the octets until they are acknowledged (RFC 2018 §8).
func (b *inbox) evict() (slab bool) {
	last := len(b.ooo) - 1
	slab = b.ooo[last].slab != 0
	b.releaseAhead(&b.ooo[last])
	b.cut(last, last+1)
	return slab
}

// evictFrames drops every out-of-order run that lies in a frame.
func (b *inbox) evictFrames() {
	for i := len(b.ooo) - 1; i >= 0; i-- {
		if b.ooo[i].framed() {
			b.releaseAhead(&b.ooo[i])
			b.cut(i, i+1)
		}
	}
}

// pull moves runs that are now in order to the in-order ring. next is the sequence
// number of the next octet expected. pull returns the new value of next.
func (b *inbox) pull(next seq.Num) seq.Num {
	done := 0
	for done < len(b.ooo) && b.ooo[done].seq.AtOrBefore(next) {
		h := b.ooo[done]
		done++
		if h.end().AtOrBefore(next) {
			b.releaseAhead(&h)
			continue
		}
		if h.slab != 0 {
			b.aheadSlabs--
		} else {
			b.aheadFrames--
		}
		b.seen(&h)
		h.data = h.data[h.seq.Until(next):]
		h.seq = next
		next = h.end()
		b.push(h)
	}
	b.cut(0, done)
	return next
}

// drainAhead releases all out-of-order runs.
func (b *inbox) drainAhead() {
	for i := range b.ooo {
		b.releaseAhead(&b.ooo[i])
	}
	b.cut(0, len(b.ooo))
	b.nrecent, b.hasDup = 0, false
}
