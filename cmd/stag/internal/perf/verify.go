package perf

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/rdma"
)

// offset is where message n is in the memory that it is sent from, and for
// Writes and Reads in that which it comes to.
func (l *lane) offset(n uint64) int { return int(n%uint64(l.slots(l.size))) * l.size }

// place is where message n begins in the pattern. What is read does not change.
func (l *lane) place(n uint64) uint64 {
	if l.Test.op() == rdma.WRRead {
		n %= uint64(l.slots(l.size))
	}
	return n * uint64(l.size)
}

// fill makes up the octets that messages are sent from, and that the peer reads.
func (l *lane) fill() {
	l.pattern(l.serves()).Fill(l.out.Bytes()[:l.slots(l.size)*l.size], 0)
}

// makeUp gives message n its own octets.
func (l *lane) makeUp(n uint64) {
	switch {
	case !l.Verify:
	case l.Test.op() == rdma.WRRead:
		clear(l.in.Bytes()[l.offset(n):][:l.size])
	default:
		l.pattern(l.serves()).Fill(l.out.Bytes()[l.offset(n):][:l.size], l.place(n))
	}
}

// arrived is told of a message of the peer's.
func (l *lane) arrived(c *rdma.Completion) error {
	n := l.received
	l.received++
	if l.Test.op() == rdmaSend {
		if int(c.Length) != l.size {
			return fmt.Errorf("a message of %d octets came, want %d", c.Length, l.size)
		}
		return l.check(n, l.receivePlace(c.ID))
	}
	return l.check(n, l.offset(n)) // of write_lat
}

// checkRead compares the messages that have been read since before.
func (l *lane) checkRead(before uint64) error {
	if l.Test.op() != rdma.WRRead {
		return nil
	}
	for n := before; n < l.completed; n++ {
		if err := l.check(n, l.offset(n)); err != nil {
			return err
		}
	}
	return nil
}

// checkWritten compares what the last of the peer's Writes have left. Of earlier
// ones nothing is there any more, and nobody was told when they came.
func (l *lane) checkWritten(count uint64) error {
	if l.Test != WriteBW {
		return nil
	}
	for n := count - min(count, uint64(l.slots(l.size))); n < count; n++ {
		if err := l.check(n, l.offset(n)); err != nil {
			return err
		}
	}
	return nil
}

// check compares the octets of the peer's message n, which are at offset at. It
// tells the peer when they are wrong.
func (l *lane) check(n uint64, at int) error {
	if !l.Verify {
		return nil
	}
	i := l.pattern(!l.serves()).Differs(l.in.Bytes()[at:][:l.size], l.place(n))
	if i < 0 {
		return nil
	}
	wrong := fmt.Errorf("octet %d of message %d is not what was sent", i, n)
	return errors.Join(wrong, l.tell(note{kind: differs}))
}
