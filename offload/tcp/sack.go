package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Receiving side: the SACK blocks to report.

// note records that the block with octet s was the last block to change.
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

// duplicate records octets that arrived twice, for one D-SACK block. If several ranges arrive twice between two
// ACKs, only the last range is reported (RFC 2883 §4: at most one).
func (b *inbox) duplicate(from, to seq.Num) {
	b.dup, b.hasDup = wire.SACKBlock{Left: from, Right: to}, true
}

// reports returns whether a SACK option has anything to report.
func (b *inbox) reports() bool { return len(b.ooo) > 0 || b.hasDup }

// blocks writes up to limit SACK blocks to h. The order is the duplicate, the block that changed last, and the
// blocks that changed before it (RFC 2018 §4, RFC 2883 §4).
func (b *inbox) blocks(h *wire.TCPFields, limit int) {
	h.NSACK = 0
	if b.hasDup {
		h.SACK[0] = b.dup
		h.NSACK = 1
	}
	fresh := int(h.NSACK) // blocks from here on are distinct
	for i := 0; i < b.nrecent && int(h.NSACK) < limit; {
		blk, ok := b.blockAt(b.recent[i])
		if !ok { // the octets were delivered or dropped meanwhile
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

// blockAt returns the longest range of held octets without a hole that contains s.
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

// Sending side: the SACK blocks of the peer.

// scoreboard is the state of the peer's SACKs that the marks of the queue's entries do not contain.
type scoreboard struct {
	high   seq.Num // the sequence number after the highest octet that was ever SACKed
	any    bool    // high is valid
	lostTo seq.Num // all octets before this number are SACKed, lost or resent

	// The blocks of the last ACK. A block that has only grown is not processed again from its beginning.
	seen  [wire.MaxSACK]wire.SACKBlock
	nseen int
}

// forget clears the scoreboard. una is the oldest unacknowledged octet.
func (b *scoreboard) forget(una seq.Num) {
	b.any, b.nseen, b.lostTo = false, 0, una
}

// sackIn processes the SACK option of s. sackIn returns how many octets were SACKed for the first time. sackIn
// ignores impossible blocks.
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
		if below || (i == 0 && s.NSACK > 1 && within(b, s.SACK[1])) { // a D-SACK block (RFC 2883 §4)
			c.stats.DupSACKs++
			if i == 0 {
				c.loss.dsack, c.hasDSACK = b, true
			}
			if below {
				continue
			}
		}
		b.Right = seq.Earlier(b.Right, c.dataNxt()) // without the FIN of this end
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

// leastRenege is the shortest time for which a peer must request octets that it has SACKed. After that time the
// octets count as discarded, as in Linux.
const leastRenege = 10 * time.Millisecond

// suspectReneging checks an ACK of new data. If the peer requests octets that it has SACKed, there are two
// explanations: the peer has discarded these octets (RFC 2018 §8), or has not yet put them in order. The next ACK
// within half a round trip shows which.
func (c *Conn) suspectReneging(now clock.Instant) {
	switch {
	case c.q.sent == 0 || c.q.at(0).mark&marked == 0:
		c.timers.renegeAt = clock.Never
	default:
		c.timers.renegeAt = now.Add(max(c.rtt.srtt/2, leastRenege))
	}
}

// renegeExpired marks octets as lost that the peer has SACKed and discarded.
func (c *Conn) renegeExpired(now clock.Instant) {
	c.timers.renegeAt = clock.Never
	c.reneged()
	c.timers.lossAt, c.probing = c.findLost(now), false
	c.repairLosses(now, 0)
}

// reneged marks all octets that the peer has SACKed as lost. If the peer has kept some of them, the peer will report
// those octets again.
func (c *Conn) reneged() {
	c.stats.Reneged++
	for i := range c.q.sent {
		if e := c.q.at(i); e.mark&marked != 0 {
			c.lose(e)
		}
	}
	c.board.forget(c.sndUna)
}

// sackBlock marks the entries within b, which must be in flight. was is the scoreboard before s. If an entry that
// was sent once arrives only now, and lies below the highest octet that was SACKed before, later segments have
// overtaken the entry.
func (c *Conn) sackBlock(now clock.Instant, s *wire.TCPFields, b wire.SACKBlock, was *scoreboard) (fresh uint32) {
	from := b.Left
	for _, old := range c.board.seen[:c.board.nseen] {
		if old.Left.AtOrBefore(b.Left) && old.Right.After(from) {
			from = seq.Earlier(old.Right, b.Right)
		}
	}
	if from == b.Right {
		return 0 // the block reports nothing new
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
