package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// watch checks after every call what must always hold.
type watch struct {
	t    tb
	c    *Conn
	m    *memory
	edge seq.Num // rcvAdv after the last call
	una  seq.Num
}

func newWatch(t tb, c *Conn, m *memory) *watch {
	w := &watch{t: t, c: c, m: m, edge: c.rcvAdv, una: c.sndUna}
	w.check()
	return w
}

func (w *watch) check() {
	w.t.Helper()
	w.queue()
	w.inbox()
	c := w.c
	if c.rcvAdv.Before(w.edge) {
		w.t.Fatalf("right edge moved back from %d to %d", w.edge, c.rcvAdv)
	}
	if c.sndUna.Before(w.una) || c.sndUna.After(c.sndNxt) {
		w.t.Fatalf("SND.UNA %d after SND.NXT %d, or moved back from %d", c.sndUna, c.sndNxt, w.una)
	}
	w.edge, w.una = c.rcvAdv, c.sndUna
}

// afterTransmit checks what must also hold after Transmit.
func (w *watch) afterTransmit() {
	w.t.Helper()
	w.check()
	c := w.c
	if c.phase == Closed {
		return
	}
	if c.outstanding() != (c.timers.rtoAt != clock.Never) {
		w.t.Fatalf("outstanding %v, but retransmission timer at %d", c.outstanding(), c.timers.rtoAt)
	}
	if c.unsent() && !c.outstanding() && !c.blocked && c.timers.persistAt == clock.Never {
		w.t.Fatalf("unsent data, nothing outstanding, and no persist timer: stuck")
	}
}

func (w *watch) queue() {
	w.t.Helper()
	c, q := w.c, &w.c.q
	var sum queue
	next, pendingSeen := c.sndUna, false
	frames := 0
	for i := range q.count {
		e := q.at(i)
		if e.seq != next || e.n == 0 {
			w.t.Fatalf("entry %d begins at %d with %d octets, want %d", i, e.seq, e.n, next)
		}
		next = e.end()
		if e.store == inFrame {
			frames++
		}
		if i >= q.sent {
			if e.mark != 0 || e.tx != 0 {
				w.t.Fatalf("unsent entry %d has marks %d, was sent %d times", i, e.mark, e.tx)
			}
			continue
		}
		sum.flight += e.n
		if e.mark&marked != 0 {
			if e.mark != marked {
				w.t.Fatalf("entry %d is SACKed and %d", i, e.mark)
			}
			sum.sacked += e.n
		}
		if e.mark&lost != 0 {
			sum.missing += e.n
		}
		if e.mark&resent != 0 {
			sum.again += e.n
		}
		if e.mark&(lost|resent) == lost {
			sum.pending += e.n
			if !pendingSeen && c.loss.lostFrom.After(e.seq) {
				w.t.Fatalf("lostFrom %d is behind lost entry %d", c.loss.lostFrom, e.seq)
			}
			pendingSeen = true
		}
		if i == q.sent-1 && e.end() != c.dataNxt() {
			w.t.Fatalf("sent entries end at %d, SND.NXT of data is %d", e.end(), c.dataNxt())
		}
	}
	if q.count > 0 && next != c.dataEnd {
		w.t.Fatalf("entries end at %d, data at %d", next, c.dataEnd)
	}
	if sum.flight != q.flight || sum.sacked != q.sacked || sum.missing != q.missing ||
		sum.again != q.again || sum.pending != q.pending {
		w.t.Fatalf("sums: counted %+v, kept %+v", sum, queue{flight: q.flight, sacked: q.sacked,
			missing: q.missing, again: q.again, pending: q.pending})
	}
	if w.m != nil && frames != w.m.tx.out() {
		w.t.Fatalf("queue holds %d frames, the pool has lent %d", frames, w.m.tx.out())
	}
}

func (w *watch) inbox() {
	w.t.Helper()
	c, b := w.c, &w.c.in
	end := c.rcvNxt
	if c.peerFin {
		end = end.Back(1)
	}
	next := end.Back(seq.Len(b.unread))
	unread, frames, slabs := uint32(0), 0, 0
	for i := range b.count {
		h := b.at(i)
		if h.seq != next || len(h.data) == 0 {
			w.t.Fatalf("run %d begins at %d with %d octets, want %d", i, h.seq, len(h.data), next)
		}
		next = h.end()
		unread += uint32(len(h.data))
		frames += b2i(h.framed())
		slabs += b2i(h.slab != 0)
	}
	if unread != b.unread || frames != b.frames || slabs != b.slabs {
		w.t.Fatalf("unread %d frames %d slabs %d, kept as %d, %d and %d", unread, frames, slabs, b.unread, b.frames, b.slabs)
	}
	if c.phase != Closed && next != end {
		w.t.Fatalf("in-order octets end at %d, RCV.NXT is %d", next, end)
	}
	aheadFrames, aheadSlabs := 0, 0
	for i := range b.ooo {
		h := &b.ooo[i]
		aheadFrames += b2i(h.framed())
		aheadSlabs += b2i(h.slab != 0)
		if h.seq.AtOrBefore(end) || len(h.data) == 0 {
			w.t.Fatalf("out-of-order run %d at %d (%d octets) is not behind a hole", i, h.seq, len(h.data))
		}
		if i > 0 && h.seq.Before(b.ooo[i-1].end()) {
			w.t.Fatalf("out-of-order runs %d and %d overlap", i-1, i)
		}
	}
	if aheadFrames != b.aheadFrames || aheadSlabs != b.aheadSlabs {
		w.t.Fatalf("out of order: frames %d slabs %d, kept as %d and %d", aheadFrames, aheadSlabs, b.aheadFrames, b.aheadSlabs)
	}
	if w.m != nil {
		if lent := slabs + aheadSlabs + w.inSlabs(); lent != len(w.m.lent) {
			w.t.Fatalf("inbox and queue hold %d slabs, %d are lent", lent, len(w.m.lent))
		}
		if held := frames + aheadFrames; held != w.m.rx.out() || held > b.max {
			w.t.Fatalf("inbox holds %d frames of at most %d, %d are lent", held, b.max, w.m.rx.out())
		}
	}
}

// inSlabs returns how many slabs the queue holds. It demands that the octets in slabs are the oldest part of the
// queue, and come before unloaded.
func (w *watch) inSlabs() (n int) {
	w.t.Helper()
	c := w.c
	for i := range c.q.count {
		e := c.q.at(i)
		in := e.store == inSlab || e.store == inSharedSlab
		if in != e.seq.Before(c.slabs.unloaded) {
			w.t.Fatalf("entry %d at %d is in a slab: %v; everything before %d should be", i, e.seq, in, c.slabs.unloaded)
		}
		n += b2i(e.store == inSlab)
	}
	if n != c.slabs.slabsSent {
		w.t.Fatalf("queue has %d slabs, kept as %d", n, c.slabs.slabsSent)
	}
	return n
}
