package flow

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// diskTarget takes writes as a target does: it joins immediate and unsolicited data, and
// asks for the rest.
type diskTarget struct {
	t     *rapid.T
	e     *end
	tasks map[pdu.Tag]*diskWrite
}

type diskWrite struct {
	id    byte
	data  []byte
	have  int    // octets that have arrived
	sn    uint32 // next DataSN of the sequence
	r2tSN uint32
	wants []want // R2Ts that have not been answered, in order
	asked int    // end of what was asked for
	more  bool   // unsolicited data goes on
}

type want struct {
	ttt      pdu.Tag
	off, end int
}

// hear checks a PDU of the initiator against RFC 7143 and takes its data.
func (d *diskTarget) hear(p caught) {
	t, par := d.t, &d.e.p
	tag := p.h.InitiatorTaskTag()
	if len(p.data) > par.MaxSendLength {
		t.Fatalf("a data segment of %d octets, the target takes %d", len(p.data), par.MaxSendLength)
	}
	if p.h.Opcode() == pdu.OpCommand {
		w := &diskWrite{id: p.h.CDB()[2], data: make([]byte, p.h.EDTL())}
		d.tasks[tag] = w
		if len(p.data) != 0 && !par.ImmediateData || len(p.data) > int(par.FirstBurstLength) {
			t.Fatalf("%d octets of immediate data", len(p.data))
		}
		w.have = copy(w.data, p.data)
		w.asked, w.more = w.have, !p.h.Final()
		if w.more && par.InitialR2T {
			t.Fatal("unsolicited data although InitialR2T is Yes")
		}
		if full := min(len(w.data), int(par.FirstBurstLength)); !w.more && !par.InitialR2T && w.have != full {
			t.Fatalf("%d octets of unsolicited data, %d were possible", w.have, full)
		}
		return
	}
	w := d.tasks[tag]
	off, n := int(p.h.BufferOffset()), len(p.data)
	if p.h.Opcode() != pdu.OpDataOut || w == nil || off != w.have || p.h.DataSN() != w.sn {
		t.Fatalf("unexpected %x", p.h)
	}
	w.have += copy(w.data[off:], p.data)
	w.sn++
	last := false
	if p.h.TargetTransferTag() == pdu.NoTag {
		if !w.more || w.have > int(par.FirstBurstLength) {
			t.Fatalf("unsolicited data up to %d", w.have)
		}
		last = w.have == min(len(w.data), int(par.FirstBurstLength))
		w.more, w.asked = !last, w.have
	} else {
		x := w.wants[0]
		if x.ttt != p.h.TargetTransferTag() || off < x.off || off+n > x.end {
			t.Fatalf("data %d to %d for the R2T %+v", off, off+n, x)
		}
		if last = off+n == x.end; last {
			w.wants = w.wants[1:]
		}
	}
	if p.h.Final() != last {
		t.Fatalf("F is %v at %d", p.h.Final(), w.have)
	}
	if last {
		w.sn = 0
	}
}

// act lets the target ask for data, or answer.
func (d *diskTarget) act() (octets []byte) {
	par := &d.e.p
	tags := make([]pdu.Tag, 0, len(d.tasks))
	for tag := range d.tasks {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	for _, tag := range tags {
		w := d.tasks[tag]
		if w.more {
			continue
		}
		for w.asked < len(w.data) && len(w.wants) < int(par.MaxOutstandingR2T) && rapid.Bool().Draw(d.t, "ask") {
			n := rapid.IntRange(1, min(len(w.data)-w.asked, int(par.MaxBurstLength))).Draw(d.t, "burst")
			octets = append(octets, d.e.r2t(tag, w.r2tSN, uint32(w.asked), uint32(n))...)
			w.wants = append(w.wants, want{pdu.Tag(0x77000000 + w.asked), w.asked, w.asked + n})
			w.asked += n
			w.r2tSN++
		}
		if w.have == len(w.data) && len(w.wants) == 0 {
			octets = append(octets, d.e.response(tag, 0, nil)...)
			if !bytes.Equal(w.data, pattern(len(w.data), w.id)) {
				d.t.Fatalf("write %d of %d octets is wrong", w.id, len(w.data))
			}
			delete(d.tasks, tag)
		}
	}
	return octets
}

// TestWrites writes with all parameters, through streams with little room: the target gets
// the right octets, and only what it allows.
func TestWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := usual()
		draw := func(low, high int, name string) int { return rapid.IntRange(low, high).Draw(t, name) }
		p.Digests = pdu.Digests{Header: rapid.Bool().Draw(t, "header digest"), Data: rapid.Bool().Draw(t, "data digest")}
		p.InitialR2T, p.ImmediateData = rapid.Bool().Draw(t, "InitialR2T"), rapid.Bool().Draw(t, "ImmediateData")
		p.MaxSendLength = draw(512, 3000, "MaxRecvDataSegmentLength")
		p.MaxBurstLength = uint32(draw(512, 6000, "MaxBurstLength"))
		p.FirstBurstLength = uint32(draw(512, int(p.MaxBurstLength), "FirstBurstLength"))
		p.MaxOutstandingR2T = uint32(draw(1, maxR2T, "MaxOutstandingR2T"))
		e := begin(t, p, 4)
		d := &diskTarget{t: t, e: e, tasks: map[pdu.Tag]*diskWrite{}}
		left, done := draw(1, 8, "writes"), 0
		total := left
		for round := 0; done < total; round++ {
			if round > 5000 {
				t.Fatal("the writes do not end")
			}
			if left > 0 && e.q.Room() > 0 && rapid.Bool().Draw(t, "post") {
				id := byte(left)
				data := pattern(draw(0, 20000, "length"), id)
				cdb := slices.Clone(write10)
				cdb[2] = id
				if n, err := e.q.Post(Command{ID: uint64(id), CDB: cdb, Out: cuts(t, data)}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				left--
			}
			e.w.max, e.w.room = draw(64, 1500, "segment"), draw(0, 5000, "room")
			for _, p := range e.sent() {
				d.hear(p)
			}
			if octets := d.act(); len(octets) != 0 {
				e.hears(octets)
			}
			var got [8]Completion
			for _, c := range got[:e.q.Poll(got[:])] {
				if done++; c.Why != OK {
					t.Fatalf("%+v", c)
				}
			}
		}
	})
}

// TestResponseBeforeTheData: the target ends a write whose data is still leaving. The
// buffer is the application's only when no PDU refers to it.
func TestResponseBeforeTheData(t *testing.T) {
	e := begin(t, usual(), 2)
	data := pattern(20000, 1)
	tag := e.post(Command{ID: 1, CDB: write10, Out: [][]byte{data}})[0].h.InitiatorTaskTag()
	e.hears(e.r2t(tag, 0, 8192, 20000-8192))
	e.w.room = 1500
	e.f.Transmit(1, e.w)
	if !e.f.tx.open {
		t.Fatal("no PDU is leaving")
	}
	e.hears(e.response(tag, 2, nil))
	e.none()
	e.w.room = -1
	sent := e.sent()
	if len(sent) != 1 || !bytes.Equal(sent[0].data, data[8192:16384]) {
		t.Fatalf("%d PDUs", len(sent))
	}
	if c := e.done(); c.ID != 1 || c.Status() != 2 {
		t.Errorf("%+v", c)
	}
}

// TestManyR2TsHaveTurns: two writes share the connection PDU by PDU.
func TestManyR2TsHaveTurns(t *testing.T) {
	e := begin(t, usual(), 2)
	c := Command{CDB: write10, Out: [][]byte{make([]byte, 65536)}}
	sent := e.post(c, c)
	a, b := sent[0].h.InitiatorTaskTag(), sent[1].h.InitiatorTaskTag()
	e.hears(e.r2t(a, 0, 8192, 32768), e.r2t(b, 0, 8192, 32768))
	var order []pdu.Tag
	for _, p := range e.sent() {
		order = append(order, p.h.InitiatorTaskTag())
	}
	if want := []pdu.Tag{a, b, a, b, a, b, a, b}; !slices.Equal(order, want) {
		t.Errorf("order %x, want %x", order, want)
	}
}

func TestWritesAllocateNothing(t *testing.T) {
	p := usual()
	p.MaxCmdSN = p.CmdSN + 1<<30
	e := begin(t, p, 2)
	in, out := [][]byte{make([]byte, 4096)}, [][]byte{make([]byte, 16384)}
	commands := []Command{{CDB: read10, In: in}, {CDB: write10, Out: out}}
	var got [4]Completion
	views := make([][]byte, 1)
	data := make([]byte, 4096)
	x := sender{digests: p.Digests}
	list := [][]byte{data}
	tw := newWire()
	reply := func(op pdu.Opcode, tag pdu.Tag, set func(h *pdu.Header), n int) {
		h := x.header(op)
		h.SetFlags(pdu.Final)
		h.SetInitiatorTaskTag(tag)
		h.SetExpCmdSN(e.f.numbers.cmdSN)
		h.SetMaxCmdSN(e.f.numbers.cmdSN + 64)
		h.SetStatSN(e.statSN)
		if set(h); h.AdvancesStatSN() {
			e.statSN++
		}
		x.begin(list, 0, n)
		tw.out = tw.out[:0]
		x.emit(tw)
		views[0] = tw.out
		e.w.in = views
		e.f.Receive(1, e.w)
	}
	status := func(h *pdu.Header) { h.SetFlags(pdu.Final | pdu.StatusPresent) }
	r2t := func(h *pdu.Header) { h.SetTargetTransferTag(9); h.SetBufferOffset(8192); h.SetDesiredLength(8192) }
	plain := func(*pdu.Header) {}
	if n := testing.AllocsPerRun(200, func() {
		if n, err := e.q.Post(commands...); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		e.w.out = e.w.out[:0]
		e.f.Transmit(1, e.w)
		read, write := pdu.Tag(e.f.tasks[e.slots(0)].Load().tag), pdu.Tag(e.f.tasks[e.slots(1)].Load().tag)
		reply(pdu.OpDataIn, read, status, 4096)
		reply(pdu.OpR2T, write, r2t, 0)
		e.f.Transmit(1, e.w)
		reply(pdu.OpResponse, write, plain, 0)
		if n := e.q.Poll(got[:]); n != 2 || got[0].Why != OK || got[1].Why != OK {
			t.Fatal(n, got[0].Why, got[1].Why, e.f.broken)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// slots returns the slot of the command that was posted as the i-th, if a read and a write
// are in progress.
func (e *end) slots(i int) int {
	for slot := range e.f.states {
		if t := e.f.tasks[slot].Load(); e.f.states[slot] == active && t.receives() == (i == 0) {
			return slot
		}
	}
	return 0
}

// TestPingsDuringUnsolicitedData: a ping, and the answer to a ping of the target, leave
// between the Data-Outs of a long unsolicited burst. Behind it they would come too late for a
// slow target. A command, a task management request and a ping behind that wait.
func TestPingsDuringUnsolicitedData(t *testing.T) {
	p := usual()
	p.InitialR2T, p.FirstBurstLength = false, 65536
	e, control := keeping(t, p, 5)
	out := pattern(65536, 3)
	e.w.room = 20000 // the command, and a part of the Data-Outs
	left := e.post(Command{ID: 1, CDB: write10, Out: [][]byte{out}}, Command{ID: 2, CDB: write10, Out: [][]byte{out[:8192]}})
	var abort pdu.Header
	abort.Reset(pdu.OpTask)
	abort.SetImmediate(true)
	abort.SetFunction(pdu.AbortTask)
	if n, err := control.Post(ping(), Command{Request: &abort}, ping()); n != 3 || err != nil {
		t.Fatalf("posted %d: %v", n, err)
	}
	e.hears(e.pdu(pdu.OpNOPIn, pdu.NoTag, func(h *pdu.Header) { h.SetTargetTransferTag(0x1234) }, nil))
	e.w.room = -1
	left = append(left, e.sent()...)

	var order []pdu.Opcode
	var data []byte
	for _, x := range left {
		if op := x.h.Opcode(); op != pdu.OpDataOut || len(order) == 0 || order[len(order)-1] != op {
			order = append(order, op)
		}
		if x.h.InitiatorTaskTag() == left[0].h.InitiatorTaskTag() {
			data = append(data, x.data...)
		}
	}
	want := []pdu.Opcode{pdu.OpCommand, pdu.OpDataOut, pdu.OpNOPOut, pdu.OpNOPOut, pdu.OpDataOut, pdu.OpTask, pdu.OpNOPOut, pdu.OpCommand}
	if !slices.Equal(order, want) {
		t.Errorf("left in the order %v, want %v", order, want)
	}
	if !bytes.Equal(data, out) {
		t.Errorf("%d octets of the burst, want %d, or they are wrong", len(data), len(out))
	}
}
