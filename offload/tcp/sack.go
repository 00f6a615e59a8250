package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Receiving side: which blocks to report.

// note remembers that the block which holds octet s has changed last.
func (b *inbox) note(s seq.Num) {
	i := 0
	for i < b.nrecent && b.recent[i] != s {
		i++
	}
	if i == b.nrecent && b.nrecent < len(b.recent) {
		b.nrecent++
	}
	if i == len(b.recent) {
		i--
	}
	copy(b.recent[1:i+1], b.recent[:i])
	b.recent[0] = s
}

// duplicate remembers octets that came twice, for one D-SACK block. Of several
// between two ACKs the last one is reported (RFC 2883 §4: at most one).
func (b *inbox) duplicate(from, to seq.Num) {
	b.dup, b.hasDup = wire.SACKBlock{Left: from, Right: to}, true
}

// reports says whether there is anything for a SACK option.
func (b *inbox) reports() bool { return len(b.ooo) > 0 || b.hasDup }

// blocks writes up to limit SACK blocks to h: the duplicate first, then the
// block that changed last, then those before it (RFC 2018 §4, RFC 2883 §4).
func (b *inbox) blocks(h *wire.TCPFields, limit int) {
	h.NSACK = 0
	if b.hasDup {
		h.SACK[0] = b.dup
		h.NSACK = 1
	}
	fresh := int(h.NSACK) // blocks from here on are distinct
	for i := 0; i < b.nrecent && int(h.NSACK) < limit; {
		blk, ok := b.blockAt(b.recent[i])
		if !ok { // delivered or given up by now
			b.nrecent--
			copy(b.recent[i:], b.recent[i+1:])
			continue
		}
		i++
		if !contains(h.SACK[fresh:h.NSACK], blk) {
			h.SACK[h.NSACK] = blk
			h.NSACK++
		}
	}
}

func contains(blocks []wire.SACKBlock, x wire.SACKBlock) bool {
	for _, b := range blocks {
		if b == x {
			return true
		}
	}
	return false
}

// blockAt is the longest range of held octets without a hole that holds s.
func (b *inbox) blockAt(s seq.Num) (blk wire.SACKBlock, ok bool) {
	i := b.behind(s) - 1
	if i < 0 || b.ooo[i].end().AtOrBefore(s) {
		return blk, false
	}
	lo, hi := i, i
	for lo > 0 && b.ooo[lo-1].end() == b.ooo[lo].seq {
		lo--
	}
	for hi+1 < len(b.ooo) && b.ooo[hi].end() == b.ooo[hi+1].seq {
		hi++
	}
	return wire.SACKBlock{Left: b.ooo[lo].seq, Right: b.ooo[hi].end()}, true
}

// Sending side: what the peer reports.

// scoreboard is what is remembered of the peer's SACKs besides the marks of
// the queue's entries.
type scoreboard struct {
	high   seq.Num // behind the highest octet that was ever SACKed
	any    bool    // high is valid
	lostTo seq.Num // everything before it is SACKed, lost or resent

	// The blocks of the last ACK, so that a block which only grew is not
	// walked again from its beginning.
	seen  [wire.MaxSACK]wire.SACKBlock
	nseen int
}

// forget empties the scoreboard; una is the oldest unacknowledged octet.
func (b *scoreboard) forget(una seq.Num) {
	b.any, b.nseen, b.lostTo = false, 0, una
}

// sackIn takes the SACK option of s into account and reports how many octets
// were SACKed for the first time. Blocks that say something impossible are
// ignored.
func (c *Conn) sackIn(now clock.Instant, s *wire.TCPFields) (fresh uint32) {
	c.hasDSACK = false
	if !c.sackOK || s.NSACK == 0 {
		return 0
	}
	var seen [wire.MaxSACK]wire.SACKBlock
	n, was := 0, c.board
	for i, b := range s.SACK[:min(int(s.NSACK), len(s.SACK))] {
		if !b.Left.Before(b.Right) || b.Right.After(c.sndNxt) {
			continue
		}
		below := b.Left.Before(c.sndUna)
		if below || (i == 0 && s.NSACK > 1 && within(b, s.SACK[1])) { // RFC 2883 §4
			c.stats.DupSACKs++
			if i == 0 {
				c.dsack, c.hasDSACK = b, true
			}
			if below {
				continue
			}
		}
		b.Right = seq.Earlier(b.Right, c.dataNxt()) // without our FIN
		if b.Left.Before(b.Right) {
			fresh += c.sackBlock(now, s, b, &was)
			seen[n] = b
			n++
		}
	}
	c.board.seen, c.board.nseen = seen, n
	return fresh
}

func within(a, b wire.SACKBlock) bool {
	return a.Left.AtOrAfter(b.Left) && a.Right.AtOrBefore(b.Right)
}

// leastRenege is how long a peer may ask for octets that it has SACKed, at least,
// before they are taken to be thrown away, as in Linux.
const leastRenege = 10 * time.Millisecond

// suspectReneging looks at an ACK of new data. If the peer asks for the very octets
// that it has SACKed, it has thrown them away again (RFC 2018 §8), or it has not put
// them in order yet: the next ACK tells, within half a round trip.
func (c *Conn) suspectReneging(now clock.Instant) {
	switch {
	case c.q.sent == 0 || c.q.at(0).mark&marked == 0:
		c.renegeAt = clock.Never
	default:
		c.renegeAt = now.Add(max(c.rtt.srtt/2, leastRenege))
	}
}

// renegeExpired gives up what the peer has SACKed and thrown away.
func (c *Conn) renegeExpired(now clock.Instant) {
	c.renegeAt = clock.Never
	c.reneged()
	c.lossAt, c.probing = c.findLost(now), false
	c.repairLosses(now, 0)
}

// reneged gives up all that the peer has SACKed. What it has kept all the same, it
// will report again.
func (c *Conn) reneged() {
	c.stats.Reneged++
	for i := range c.q.sent {
		if e := c.q.at(i); e.mark&marked != 0 {
			c.lose(e)
		}
	}
	c.board.forget(c.sndUna)
}

// sackBlock marks the entries that lie within b, which is in flight. was is the
// scoreboard before s: what is below its highest octet and arrives only now,
// though sent once, was overtaken.
func (c *Conn) sackBlock(now clock.Instant, s *wire.TCPFields, b wire.SACKBlock, was *scoreboard) (fresh uint32) {
	from := b.Left
	for _, old := range c.board.seen[:c.board.nseen] {
		if old.Left.AtOrBefore(b.Left) && old.Right.After(from) {
			from = seq.Earlier(old.Right, b.Right)
		}
	}
	if from == b.Right {
		return 0 // nothing new
	}
	for i := c.q.find(from); i < c.q.sent; i++ {
		e := c.q.at(i)
		if e.end().After(b.Right) {
			break
		}
		if e.seq.Before(b.Left) || e.mark&marked != 0 {
			continue
		}
		if e.tx == 1 && was.any && e.end().Before(was.high) {
			c.overtaken()
		}
		c.arrivedAt(now, s, e)
		c.q.remark(e, marked)
		fresh += e.n
		if !c.board.any || e.end().After(c.board.high) {
			c.board.high, c.board.any = e.end(), true
		}
	}
	return fresh
}
