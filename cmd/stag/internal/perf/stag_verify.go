package perf

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// offset is where message i is in the memory that it is sent from, and for
// Writes and Reads in that which it comes to.
func (n *notes) offset(i uint64) int { return int(i%uint64(n.l.run.slots(n.l.size))) * n.l.size }

// place is where message i begins in the pattern. What is read does not change.
func (n *notes) place(i uint64) uint64 {
	if n.l.run.Test.op() == rdma.WRRead {
		i %= uint64(n.l.run.slots(n.l.size))
	}
	return i * uint64(n.l.size)
}

// pattern is what a round's messages of one end consist of.
func (n *notes) pattern(ofServer bool) octets.Pattern {
	p := octets.Pattern(2 * n.round)
	if ofServer {
		p++
	}
	return p
}

// fill gives the next message its own octets.
func (n *notes) fill() {
	i := n.l.posted
	switch {
	case !n.l.run.Verify:
	case n.l.run.Test.op() == rdma.WRRead:
		clear(n.in.Bytes()[n.offset(i):][:n.l.size])
	default:
		n.pattern(n.l.run.serves()).Fill(n.out.Bytes()[n.offset(i):][:n.l.size], n.place(i))
	}
}

// arrived is told of a message of the peer's.
func (n *notes) arrived(c *rdma.Completion) error {
	i := n.l.received
	n.l.received++
	if n.l.run.Test.op() == rdmaSend {
		if int(c.Length) != n.l.size {
			return fmt.Errorf("a message of %d octets came, want %d", c.Length, n.l.size)
		}
		return n.verify(i, n.receivePlace(c.ID))
	}
	return n.verify(i, n.offset(i)) // of write_lat
}

// compare compares the messages that have been read since before.
func (n *notes) compare(before uint64) error {
	if n.l.run.Test.op() != rdma.WRRead {
		return nil
	}
	for i := before; i < n.l.completed; i++ {
		if err := n.verify(i, n.offset(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkWritten compares what the last of the peer's Writes have left. Of earlier
// ones nothing is there any more, and nobody was told when they came.
func (n *notes) checkWritten(count uint64) error {
	if n.l.run.Test != WriteBW {
		return nil
	}
	for i := count - min(count, uint64(n.l.run.slots(n.l.size))); i < count; i++ {
		if err := n.verify(i, n.offset(i)); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the octets of the peer's message i, which are at offset at. It
// tells the peer when they are wrong.
func (n *notes) verify(i uint64, at int) error {
	if !n.l.run.Verify {
		return nil
	}
	octet := n.pattern(!n.l.run.serves()).Differs(n.in.Bytes()[at:][:n.l.size], n.place(i))
	if octet < 0 {
		return nil
	}
	wrong := fmt.Errorf("octet %d of message %d is not what was sent", octet, i)
	return errors.Join(wrong, n.tell(note{kind: differs}))
}
