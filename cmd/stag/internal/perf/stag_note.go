package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// rdmaSend is the operation of the tests whose messages need receives.
const rdmaSend = rdma.WRSend

// A note is a message between the two ends of a QP that is not measured. A Write puts the note into the next of
// notesAtOnce places in the peer's memory. A solicited Send without payload announces it. Measured Sends are not
// solicited.
//
//	0      4       8       16      24         32     40
//	| kind | round | count | nanos | measured | peak |
type note struct {
	kind  kind
	round uint32
	count uint64        // number of messages in this round
	took  time.Duration // in a note of kind done: the time that the measured messages took
	// measured is the number of the measured messages.
	measured uint64
	peak     float64 // highest rate of all QPs together in messages a second; 0: not computed
}

type kind uint32

const (
	ready   kind = iota + 1 // this end is ready for the round
	credit                  // messages have arrived; count is their number
	last                    // the sender of the note has sent its last message of the round; count is the number of its messages
	whole                   // the answer to last: all messages have arrived
	done                    // as for last; in addition, all these messages have arrived
	goodbye                 // no round follows; count is 1 after an interrupt
	differs                 // the sender of the note has found wrong octets; the test ends
)

const (
	noteLen = 40
	// notesAtOnce is more than the number of notes that can be outstanding: a credit for every share of the receives
	// (see share), and one note of each other kind.
	notesAtOnce = 16
	// noteID is the ID of a note's work request.
	noteID = aside
)

func (n note) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(n.kind))
	b = binary.BigEndian.AppendUint32(b, n.round)
	b = binary.BigEndian.AppendUint64(b, n.count)
	b = binary.BigEndian.AppendUint64(b, uint64(n.took))
	b = binary.BigEndian.AppendUint64(b, n.measured)
	return binary.BigEndian.AppendUint64(b, math.Float64bits(n.peak))
}

// parseNote parses noteLen octets.
func parseNote(b []byte) note {
	return note{
		kind:  kind(binary.BigEndian.Uint32(b)),
		round: binary.BigEndian.Uint32(b[4:]),
		count: binary.BigEndian.Uint64(b[8:]),
		took:  time.Duration(binary.BigEndian.Uint64(b[16:])),

		measured: binary.BigEndian.Uint64(b[24:]),
		peak:     math.Float64frombits(binary.BigEndian.Uint64(b[32:])),
	}
}

// share returns the number of Sends after which the receiver sends a credit.
func (o Options) share() uint64 { return uint64(max(o.rxDepth()/4, 1)) }

// tell writes x into the next place of the peer's inbox, and then announces it by a solicited Send.
func (n *notes) tell(x note) error {
	place := n.told % notesAtOnce * noteLen
	n.told++
	_, err := n.l.qp.PostSend(
		rdma.SendWR{ID: noteID, Op: rdma.WRWrite, Inline: x.append(nil), RKey: n.theirs.Notes, RemoteAddr: place},
		rdma.SendWR{ID: noteID, Op: rdma.WRSend, Flags: rdma.Signaled | rdma.Solicited},
	)
	return err
}

// note reads the next note from the inbox, and does what its kind asks for.
func (n *notes) note() error {
	place := n.noted % notesAtOnce * noteLen
	n.noted++
	x := parseNote(n.inbox.Bytes()[place:][:noteLen])
	switch x.kind {
	case ready:
		n.peerReady = x.round
		return nil
	case goodbye:
		n.bye, n.cut = true, x.count != 0
		return nil
	case differs:
		return errors.New("the peer found octets that differ from what was sent")
	}
	if x.round != n.round {
		return fmt.Errorf("the peer sent a note for round %d in round %d", x.round, n.round)
	}
	switch x.kind {
	case credit:
		n.credited = x.count
	case last:
		if n.l.run.Test.op() == rdmaSend && x.count != n.l.received {
			return fmt.Errorf("%d Sends arrived of %d", n.l.received, x.count)
		}
		n.repaid = n.l.received
		return n.tell(note{kind: whole, round: n.round, count: x.count})
	case whole:
		n.arrivedAll = true
	case done:
		n.peerDone, n.peer = true, x
		return n.checkWritten(x.count)
	default:
		return fmt.Errorf("the peer sent a note of kind %d: is it another version of stag?", x.kind)
	}
	return nil
}
