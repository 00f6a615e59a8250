package rdmap

import "github.com/stag-rdma/stag/offload/wire"

// Stats counts the messages of a QP since it was connected. Every counter only grows. A
// message counts when its last segment has been sent or placed. A refused message does
// not count. The first messages of MPA revision 2 count. The empty Writes to a peer
// that is silent at first count as well.
type Stats struct {
	FPDUsIn, FPDUsOut                 uint64 // segments of all messages; each segment is one FPDU
	WritesIn, WritesOut               uint64 // RDMA Writes
	WriteOctetsIn, WriteOctetsOut     uint64 // payload octets of RDMA Writes
	ReadRequestsIn, ReadRequestsOut   uint64 // RDMA Read Requests of the peer, and of this end
	ReadResponsesIn, ReadResponsesOut uint64 // RDMA Reads that the peer answered, and that this end answered
	ReadOctetsIn, ReadOctetsOut       uint64 // payload octets of RDMA Read Responses
	SendsIn, SendsOut                 uint64 // Sends of all types
	SendOctetsIn, SendOctetsOut       uint64 // payload octets of Sends
	OutOfOrderOctetsIn                uint64 // payload octets that were placed while octets in front of them were missing
	InvalidatesIn, InvalidatesOut     uint64 // Sends with Invalidate; they also count as Sends
	ImmediatesIn, ImmediatesOut       uint64 // messages with Immediate Data: those of RFC 7306, which do not count as Sends, and Sends with Immediate, which do
	Holds                             uint64 // messages of the peer that waited for a receive
	AtomicsIn, AtomicsOut             uint64 // Atomic Requests of the peer, and of this end
	AtomicsDoneIn, AtomicsDoneOut     uint64 // Atomic Responses of the peer, and of this end
	MostReadsIn, MostReadsOut         uint64 // largest number of RDMA Reads and Atomic Requests outstanding at a time: of the peer, and of this end
}

// Stats returns the counters. Only the goroutine that runs the QP's steps may call it.
// When the QP is dead, any goroutine may call it.
func (q *QP) Stats() Stats {
	in, out := &q.counts.in, &q.counts.out
	s := Stats{
		FPDUsIn: in.fpdus, FPDUsOut: out.fpdus,
		WritesIn: in.messages[wire.OpWrite], WritesOut: out.messages[wire.OpWrite],
		WriteOctetsIn: in.octets[wire.OpWrite], WriteOctetsOut: out.octets[wire.OpWrite],
		ReadRequestsIn: in.messages[wire.OpReadRequest], ReadRequestsOut: out.messages[wire.OpReadRequest],
		ReadResponsesIn: in.messages[wire.OpReadResponse], ReadResponsesOut: out.messages[wire.OpReadResponse],
		ReadOctetsIn: in.octets[wire.OpReadResponse], ReadOctetsOut: out.octets[wire.OpReadResponse],
		SendsIn: in.messages.sum(sends), SendsOut: out.messages.sum(sends),
		SendOctetsIn: in.octets.sum(sends), SendOctetsOut: out.octets.sum(sends),
		InvalidatesIn: in.messages.sum(invalidates), InvalidatesOut: out.messages.sum(invalidates),
		ImmediatesIn: in.messages.sum(immediates), ImmediatesOut: out.messages.sum(immediates),
		AtomicsIn: in.messages[wire.OpAtomicRequest], AtomicsOut: out.messages[wire.OpAtomicRequest],
		AtomicsDoneIn: in.messages[wire.OpAtomicResponse], AtomicsDoneOut: out.messages[wire.OpAtomicResponse],
		Holds:       q.in.hold.count,
		MostReadsIn: uint64(in.reads), MostReadsOut: uint64(out.reads),
	}
	if q.in.ahead != nil {
		s.OutOfOrderOctetsIn = q.in.ahead.octets
	}
	return s
}

// counts are the tallies of received segments and of sent ones.
type counts struct{ in, out tally }

// tally counts segments of one direction, by opcode.
type tally struct {
	fpdus            uint64
	messages, octets byOpcode
	reads            int // largest number of Reads that were outstanding
}

// byOpcode is indexed by opcode. Every message that is sent or accepted has an opcode
// in ops.
type byOpcode [rows]uint64

// count counts a segment with n octets of payload.
func (t *tally) count(op wire.Opcode, n int, last bool) {
	t.fpdus++
	t.octets[op] += uint64(n)
	if last {
		t.messages[op]++
	}
}

// sum returns the sum of the counts of all opcodes for which is returns true.
func (n *byOpcode) sum(is func(*wire.OpInfo) bool) (all uint64) {
	for i := range n {
		if is(wire.InfoOf(wire.Opcode(i))) {
			all += n[i]
		}
	}
	return all
}

// sends reports whether a message of this kind is a Send.
func sends(op *wire.OpInfo) bool { return !op.Tagged && op.Queue == wire.QueueSend && !op.Immediate }

func immediates(op *wire.OpInfo) bool { return op.Immediate || op.WithImm }

func invalidates(op *wire.OpInfo) bool { return op.Invalidates }
