package rdmap

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Image is the state of a QP between two steps, as a plain value. It refers to memory by
// STags and offsets only, so that a QP of another process can continue from it: see
// QP.Image and Import. Encode and ParseImage carry it there.
//
// It does not contain what a step can find again: the check of an FPDU that waits in the
// stream, and the memory of an STag.
type Image struct {
	at     clock.Instant // time of the other fields
	number uint32

	connection
	opened

	send work.SendState
	recv work.RecvState
}

// connection is the part of an Image that every QP has.
type connection struct {
	state     State
	dead      bool
	started   bool // Start was called, so that the fields of opened are valid
	halt      uint64
	wantAbort error
	wantClose bool
	spilt     bool
	flags     flags
	cause     Cause
	rate      uint64
	counts    counts
	early     uint64 // ahead.octets
	holds     uint64 // hold.count
	wrote     uint32 // incoming.wrote
}

// flags are the truth values of an Image.
type flags struct {
	established, drained, sated  bool
	overrun, gone                bool
	peerShut, weShut             bool
	open, begun, rtrDue, rtrIn   bool
	writing, turn                bool
	delivering, resolving, spent bool // see QP.exportHeld
	settling                     bool
	holding                      bool // a message waits for a receive
}

// opened is the part of an Image that only a QP with a connection has.
type opened struct {
	agree    mpa.Agreed
	deframer mpa.DeframerState
	phase    int // of the Framer
	msn      [queues]uint32

	sends, requests, responses ddp.Queue
	arriving                   arrival

	msg   ddp.Message
	what  carries
	pos   uint32
	fixed []byte
	delay clock.Instant
	pace  paceState

	orq     []outRead
	irq     []inRead
	pending []pendingAtomic

	held       work.Completion // flags.delivering: completion that waits for an invalidation
	wanted     tpt.STag        // flags.resolving: STag whose memory was asked for
	waits      waits           // flags.holding: the wait
	settleLast uint32
	behind     []placedEarly
	nudge      nudge
	ending     *ending // nil: there is none
}

// waits is a wait for a receive.
type waits struct {
	since, until clock.Instant
	closing      bool
}

// paceState is a pace without its rate.
type paceState struct {
	kept     uint64
	paid, at clock.Instant
	rest     uint64
}

// placedEarly is a segment behind a hole that was placed: see early.
type placedEarly struct {
	tail           mpa.Tail
	touched, spoil bool
	access         tpt.Access // without PD and QP
}

// Number returns the number of the QP.
func (i *Image) Number() uint32 { return i.number }

// State returns the state of the QP.
func (i *Image) State() State { return i.state }

// Dead reports whether the QP is dead. Such a QP has no stream.
func (i *Image) Dead() bool { return i.dead }

// Started reports whether the QP has, or had, a stream.
func (i *Image) Started() bool { return i.started }

// Agreed returns what the ends of the connection have agreed on, if there is a connection.
func (i *Image) Agreed() mpa.Agreed { return i.agree }

// imageFormat is the format of the encoding. A change of the fields needs another version,
// and the old one must stay readable.
var imageFormat = pack.Format{Name: "QP", Kind: 0x5051, Version: 2}

// Encode appends the encoding to b.
func (i *Image) Encode(b []byte) ([]byte, error) { return imageFormat.Encode(b, i.code) }

// ParseImage reads an encoding, which must be all of b. at is the time of the export, by
// the clock of this process. The errors are pack.ErrCorrupt and pack.ErrVersion. Import
// checks whether the values go together.
func ParseImage(b []byte, at clock.Instant) (*Image, error) {
	i := &Image{at: at}
	if err := imageFormat.Decode(b, i.code); err != nil {
		return nil, err
	}
	return i, nil
}

// carriedErrors are the errors that keep their identity. Append only.
var carriedErrors = []error{
	ErrTruncated, ErrPeerClosed, ErrReplyRefused, mpa.ErrMarkersRefused, ErrLocalAccess, ErrTable, ErrBadRequest,
	ErrNoReads, ErrNoRFC7306, ErrBrokenRing, ErrNarrow, ErrCQOverrun, ErrMemoryGone,
	stream.ErrReset, stream.ErrTimeout, stream.ErrAborted, stream.ErrUnreachable, stream.ErrPort, stream.ErrUnsummed,
	ErrImmediate,
}

func (i *Image) code(c *pack.Coder) {
	pack.Uint(c, &i.number)
	i.connection.code(c)
	if i.started {
		i.opened.code(c, i.at)
	}
	i.send.Code(c)
	i.recv.Code(c)
}

func (i *connection) code(c *pack.Coder) {
	pack.Uint(c, &i.state)
	c.Bool(&i.dead)
	c.Bool(&i.started)
	pack.Uint(c, &i.halt)
	c.Error(&i.wantAbort, carriedErrors)
	c.Bool(&i.wantClose)
	c.Bool(&i.spilt)
	f := &i.flags
	for _, b := range []*bool{
		&f.established, &f.drained, &f.sated, &f.overrun, &f.gone, &f.peerShut, &f.weShut, &f.open, &f.begun, &f.rtrDue, &f.rtrIn,
		&f.writing, &f.turn, &f.delivering, &f.resolving, &f.spent, &f.settling,
	} {
		c.Bool(b)
	}
	i.cause.code(c)
	pack.Uint(c, &i.rate)
	i.counts.in.code(c)
	i.counts.out.code(c)
	pack.Uint(c, &i.early)
	if c.Version() >= 2 {
		c.Bool(&f.holding)
		pack.Uint(c, &i.holds)
		pack.Uint(c, &i.wrote)
	}
}

func (a *Cause) code(c *pack.Coder) {
	pack.Uint(c, &a.Code.Layer)
	pack.Uint(c, &a.Code.Type)
	pack.Uint(c, &a.Code.Code)
	c.Bool(&a.Remote)
	c.Bool(&a.Swapped)
	c.Bool(&a.HasSegment)
	pack.Uint(c, &a.Opcode)
	pack.Uint(c, &a.STag)
	pack.Uint(c, &a.TO)
	c.Error(&a.Err, carriedErrors)
}

func (t *tally) code(c *pack.Coder) {
	pack.Uint(c, &t.fpdus)
	rows := len(t.messages)
	if c.Version() < 2 {
		rows = int(wire.OpAtomicResponse) + 1
	}
	for _, n := range []*byOpcode{&t.messages, &t.octets} {
		if c.Len(rows, rows, 8) != rows && c.OK() {
			c.Fail("the counters of another number of opcodes")
		}
		for i := range rows {
			pack.Uint(c, &n[i])
		}
	}
	pack.Int(c, &t.reads, 0, mpa.MaxDepth)
}

func (i *opened) code(c *pack.Coder, at clock.Instant) {
	i.agree.Code(c)
	i.deframer.Code(c)
	pack.Int(c, &i.phase, 0, wire.MarkerSpacing-1)
	for q := range i.msn {
		pack.Uint(c, &i.msn[q])
	}
	i.sends.Code(c)
	i.requests.Code(c)
	i.responses.Code(c)
	pack.Uint(c, &i.arriving.opcode)
	pack.Uint(c, &i.arriving.invalidate)
	i.msg.Code(c)
	pack.Uint(c, &i.what)
	pack.Uint(c, &i.pos)
	c.Octets(&i.fixed, len(outgoing{}.fixed))
	instant(c, at, &i.delay)
	i.pace.code(c, at)
	pack.List(c, &i.orq, mpa.MaxDepth, func(c *pack.Coder, r *outRead) { r.code(c) })
	pack.List(c, &i.irq, mpa.MaxDepth, func(c *pack.Coder, r *inRead) { r.code(c) })
	pack.List(c, &i.pending, mpa.MaxDepth, func(c *pack.Coder, p *pendingAtomic) { p.code(c) })
	work.CodeCompletion(c, &i.held)
	pack.Uint(c, &i.wanted)
	pack.Uint(c, &i.settleLast)
	pack.List(c, &i.behind, mostEarly, func(c *pack.Coder, m *placedEarly) {
		pack.Uint(c, &m.tail.End)
		pack.Uint(c, &m.tail.CRC)
		c.Bool(&m.touched)
		c.Bool(&m.spoil)
		pack.Uint(c, &m.access.STag)
		pack.Uint(c, &m.access.Right)
		pack.Uint(c, &m.access.TO)
		pack.Uint(c, &m.access.Len)
	})
	i.nudge.code(c, at)
	if c.Version() >= 2 {
		instant(c, at, &i.waits.since)
		instant(c, at, &i.waits.until)
		c.Bool(&i.waits.closing)
	}
	ends := i.ending != nil
	if c.Bool(&ends); ends {
		if i.ending == nil {
			i.ending = new(ending)
		}
		i.ending.code(c, at)
	}
}

// mostAway limits how far a deadline is from the time of the export.
const mostAway = int64(1) << 61

// instant codes a time relative to at, because each process has a clock of its own.
func instant(c *pack.Coder, at clock.Instant, t *clock.Instant) {
	never := *t == clock.Never
	if c.Bool(&never); never {
		*t = clock.Never
		return
	}
	away := int64(t.Sub(at))
	pack.Int(c, &away, -mostAway, mostAway)
	if *t = at + clock.Instant(away); *t == clock.Never {
		*t++
	}
}

func (p *paceState) code(c *pack.Coder, at clock.Instant) {
	pack.Uint(c, &p.kept)
	instant(c, at, &p.paid)
	instant(c, at, &p.at)
	pack.Uint(c, &p.rest)
}

func (r *outRead) code(c *pack.Coder) {
	pack.Uint(c, &r.pos)
	c.Bool(&r.rtr)
	c.Bool(&r.atomic)
	pack.Uint(c, &r.stag)
	pack.Uint(c, &r.to)
	pack.Uint(c, &r.left)
	pack.Uint(c, &r.size)
	pack.Uint(c, &r.source)
	pack.Uint(c, &r.id)
	pack.Uint(c, &r.from)
}

func (r *inRead) code(c *pack.Coder) {
	pack.Uint(c, &r.sinkSTag)
	pack.Uint(c, &r.sinkTO)
	pack.Uint(c, &r.size)
	pack.Uint(c, &r.sourceSTag)
	pack.Uint(c, &r.sourceTO)
	c.Fixed(r.header[:])
	c.Bool(&r.atomic)
}

func (p *pendingAtomic) code(c *pack.Coder) {
	r := &p.request
	pack.Uint(c, &r.Op)
	pack.Uint(c, &r.ID)
	pack.Uint(c, &r.STag)
	pack.Uint(c, &r.TO)
	pack.Uint(c, &r.Data)
	pack.Uint(c, &r.Mask)
	pack.Uint(c, &r.Compare)
	pack.Uint(c, &r.CompareMask)
	pack.Uint(c, &p.old)
	c.Bool(&p.done)
	if !r.Op.Known() {
		c.Fail("the atomic operation %d", r.Op)
	}
}

func (n *nudge) code(c *pack.Coder, at clock.Instant) {
	pack.Int(c, &n.left, 0, nudges)
	pack.Int(c, &n.wait, 0, nudgeAfter<<nudges)
	instant(c, at, &n.at)
	c.Bool(&n.due)
}

func (t *ending) code(c *pack.Coder, at clock.Instant) {
	f := &t.fields
	pack.Uint(c, &f.Layer)
	pack.Uint(c, &f.Type)
	pack.Uint(c, &f.Code)
	c.Bool(&f.HasSegment)
	pack.Uint(c, &f.SegmentLen)
	c.Octets(&f.Header, len(t.header))
	c.Octets(&f.ReadRequest, len(t.request))
	c.Bool(&t.due)
	c.Bool(&t.taken)
	instant(c, at, &t.deadline)
	instant(c, at, &t.limit)
	if n := len(f.Header); n != 0 && n != wire.TaggedLen && n != wire.UntaggedLen || len(f.ReadRequest) != 0 && len(f.ReadRequest) != len(t.request) {
		c.Fail("a Terminate quotes a header of %d octets", n)
	}
}
