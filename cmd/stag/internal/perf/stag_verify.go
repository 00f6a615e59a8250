package perf

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// offset returns where message i begins in the memory of its sender. For Writes and Reads, message i begins at the
// same offset in the memory of its receiver.
func (n *notes) offset(i uint64) int { return int(i%uint64(n.l.run.slots(n.l.size))) * n.l.size }

// place returns where message i begins in the pattern. The data for Reads does not change during a round.
func (n *notes) place(i uint64) uint64 {
	if n.l.run.Test.op() == rdma.WRRead {
		i %= uint64(n.l.run.slots(n.l.size))
	}
	return i * uint64(n.l.size)
}

// pattern returns the pattern of the messages that one end sends in a round.
func (n *notes) pattern(ofServer bool) octets.Pattern {
	p := octets.Pattern(2 * n.round)
	if ofServer {
		p++
	}
	return p
}

// fill writes the octets of the next message.
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

// arrived handles a message of the peer.
func (n *notes) arrived(c *rdma.Completion) error {
	i := n.l.received
	n.l.received++
	if n.l.run.Test.op() == rdmaSend {
		if int(c.Length) != n.l.size {
			return fmt.Errorf("a message of %d octets came, want %d", c.Length, n.l.size)
		}
		return n.verify(i, n.receivePlace(c.ID))
	}
	return n.verify(i, n.offset(i)) // messages of write_lat
}

// compare checks the messages from number before on that Reads have fetched.
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

// checkWritten compares the messages that the peer's last Writes left. Earlier messages have been overwritten, and no
// completion reported them.
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

// verify compares the octets of the peer's message i, which begin at offset at. If they are wrong, verify tells the
// peer.
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
