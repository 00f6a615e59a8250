package flow

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/captures"
)

// mover is a Datamover that records PDUs.
type mover struct {
	sent      []caught
	lent      map[int][][]byte // buffers that the target may access, by slot
	withdrawn map[int]uint32   // octets placed, by slot
	diverted  []pdu.Tag
	full      bool
	broke     bool // no credit
	aborted   bool
	closed    bool
	fail      error
}

func newMover() *mover { return &mover{lent: map[int][][]byte{}, withdrawn: map[int]uint32{}} }

func (m *mover) Room() bool   { return !m.full }
func (m *mover) Credit() bool { return !m.broke }
func (m *mover) Close()       { m.closed = true }
func (m *mover) Abort()       { m.aborted = true }
func (m *mover) Send(d *Departure) error {
	if m.fail != nil {
		return m.fail
	}
	data := make([]byte, d.Length)
	if d.Length != 0 && !d.Fill(data) {
		return errors.New("unreadable")
	}
	m.sent = append(m.sent, caught{h: *d.Header, data: data})
	if d.Buffers != nil {
		m.lent[d.Slot] = d.Buffers
	}
	return nil
}
func (m *mover) Withdraw(slot int, placed uint32) bool {
	delete(m.lent, slot)
	m.withdrawn[slot] = placed
	return true
}
func (m *mover) Divert(slot int, tag pdu.Tag) {
	delete(m.lent, slot)
	m.diverted = append(m.diverted, tag)
}

// TestCapturedMessages plays the targets of the captures of iSER: LIO and tgtd, with
// open-iscsi and libiscsi.
func TestCapturedMessages(t *testing.T) {
	played := 0
	for name, c := range captures.ISER(t) {
		s := readSession(name, controls(c.Client.Bytes()), controls(c.Server.Bytes()))
		if len(s.answers) == 0 || len(s.requests) == 0 {
			continue
		}
		s.playMessages(t)
		played++
	}
	if played < 3 {
		t.Errorf("%d sessions", played)
	}
}

// controls returns the control PDUs of a captured stream of iWARP, with their pads.
func controls(b []byte) (all []byte) {
	const request, untagged, last = 20, 18, 0x40
	if len(b) < request {
		return nil
	}
	b = b[request+int(binary.BigEndian.Uint16(b[request-2:])):]
	var message []byte
	for len(b) > 2 {
		n := 2 + int(binary.BigEndian.Uint16(b))
		if n+pdu.Pad(n)+4 > len(b) {
			return all // the capture ends within the FPDU
		}
		if segment := b[2:n]; segment[0]&0x80 == 0 && segment[1]&0xf != 1 && binary.BigEndian.Uint32(segment[6:]) == 0 {
			message = append(message, segment[untagged:]...)
			if segment[0]&last != 0 {
				if _, rest, ok := pdu.ParseISER(message); ok {
					all = append(append(all, rest...), make([]byte, pdu.Pad(len(rest)))...)
				}
				message = nil
			}
		}
		b = b[n+pdu.Pad(n)+4:]
	}
	return all
}

func (s *session) playMessages(t *testing.T) {
	p := usual()
	p.CmdSN, p.MaxCmdSN = s.requests[0].h.CmdSN(), s.requests[0].h.CmdSN()+1000
	p.StatSN, p.InitialR2T, p.Digests = s.answers[0].h.StatSN(), true, none // the ExpStatSN of libiscsi is one too far
	e, m := begin(t, p, 256), newMover()
	e.f.Attach(m)
	tags := map[pdu.Tag]pdu.Tag{}
	left := s.requests
	for i, a := range s.answers {
		tag := a.h.InitiatorTaskTag()
		for tag != pdu.NoTag && tags[tag] == 0 {
			if len(left) == 0 {
				t.Fatalf("%s: answer %d has the tag of no request", s.name, i)
			}
			s.requestMessage(t, e, m, left[0], tags)
			left = left[1:]
		}
		h := a.h
		if tag != pdu.NoTag {
			h.SetInitiatorTaskTag(tags[tag])
		}
		octets := encode(none, h, nil, a.data)
		if used, why := e.f.Hear(0, octets); used != len(octets) || why != OK || m.aborted {
			t.Fatalf("%s: answer %d, %v, uses %d octets of %d: %v", s.name, i, a.h.Opcode(), used, len(octets), why)
		}
		if v, ok := e.event(); ok && v.Why != OK {
			t.Fatalf("%s: answer %d, %v, is refused: %v", s.name, i, a.h.Opcode(), v.Why)
		}
		e.f.Move(0)
		var done [2]Completion
		if n := e.q.Poll(done[:]); n != 0 {
			if c := done[0]; n != 1 || c.Why != OK || c.Header != h {
				t.Fatalf("%s: answer %d completes %d requests: %v", s.name, i, n, c.Why)
			}
			delete(tags, tag)
		} else if a.h.AdvancesStatSN() && tag != pdu.NoTag {
			t.Fatalf("%s: answer %d, %v, completes nothing", s.name, i, a.h.Opcode())
		}
	}
}

// requestMessage posts a captured request, and compares what leaves.
func (s *session) requestMessage(t *testing.T, e *end, m *mover, r caught, tags map[pdu.Tag]pdu.Tag) {
	tag := r.h.InitiatorTaskTag()
	if tag == pdu.NoTag {
		return
	}
	c := Command{ID: uint64(tag), LUN: r.h.LUN(), CDB: r.h.CDB(), Attribute: r.h.Attribute()}
	buf := make([]byte, max(8192, r.h.EDTL()))
	switch {
	case r.h.Opcode() != pdu.OpCommand:
		c.Request, c.CDB, c.Out, c.In = &r.h, nil, [][]byte{r.data}, [][]byte{buf}
	case r.h.Has(pdu.Write):
		c.Out = [][]byte{buf[:r.h.EDTL()]}
	case r.h.Has(pdu.Read):
		c.In = [][]byte{buf[:r.h.EDTL()]}
	}
	if n, err := e.q.Post(c); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	before := len(m.sent)
	if why := e.f.Move(0); why != OK || len(m.sent) != before+1 {
		t.Fatalf("%s: %d PDUs leave for a request: %v", s.name, len(m.sent)-before, why)
	}
	h, want := m.sent[before].h, r.h
	tags[tag] = h.InitiatorTaskTag()
	want.SetInitiatorTaskTag(h.InitiatorTaskTag())
	want.SetExpStatSN(h.ExpStatSN())
	want.SetDataLength(h.DataLength())
	want.SetFlags(h.Flags()&^pdu.Read & ^pdu.Write | want.Flags()&(pdu.Read|pdu.Write)) // R with EDTL 0
	if h != want {
		t.Fatalf("%s: sent\n%x, the captured request is\n%x", s.name, h, want)
	}
	if n := h.DataLength(); h.Opcode() == pdu.OpCommand && n != 0 && uint32(n) != h.EDTL() {
		t.Fatalf("%s: %d octets of %d are immediate", s.name, n, h.EDTL())
	}
}

// Immediate data is all of the data or none, the rest is lent; an answer withdraws it, and
// a cancel diverts it.
func TestDatamover(t *testing.T) {
	p := usual()
	p.Digests = none
	p.InitialR2T, p.ImmediateData, p.FirstBurstLength, p.MaxSendLength = true, true, 4096, 1024
	e, m := begin(t, p, 8), newMover()
	e.f.Attach(m)
	post := func(id uint64, in, out int) *caught {
		t.Helper()
		c := Command{ID: id, CDB: make([]byte, 6)}
		if in != 0 {
			c.In = [][]byte{make([]byte, in)}
		}
		if out != 0 {
			c.Out = [][]byte{bytes.Repeat([]byte{byte(id)}, out)}
		}
		_, err := e.q.Post(c)
		if err != nil || e.f.Move(0) != OK {
			t.Fatal(err, e.f.broken)
		}
		return &m.sent[len(m.sent)-1]
	}
	for id, c := range []struct{ in, out, immediate, lent int }{{0, 0, 0, 0}, {512, 0, 0, 1}, {0, 1024, 1024, 1}, {0, 1025, 0, 2}, {0, 4097, 0, 3}} {
		sent := post(uint64(id), c.in, c.out)
		if len(sent.data) != c.immediate || len(m.lent) != c.lent || !sent.h.Final() {
			t.Errorf("%+v: %d octets are immediate, %d commands lend buffers, header %x", c, len(sent.data), len(m.lent), sent.h)
		}
	}
	var h pdu.Header
	h.Reset(pdu.OpResponse)
	h.SetFlags(pdu.Final | pdu.Underflow)
	h.SetResidual(12)
	h.SetInitiatorTaskTag(m.sent[1].h.InitiatorTaskTag())
	h.SetStatSN(p.StatSN)
	h.SetExpCmdSN(p.CmdSN)
	h.SetMaxCmdSN(p.MaxCmdSN)
	e.f.Hear(0, h[:])
	var done [1]Completion
	if n := e.q.Poll(done[:]); n != 1 || done[0].ID != 1 || done[0].Length != 500 || len(m.lent) != 2 || len(m.withdrawn) != 1 {
		t.Errorf("%d completions, %+v, %v", n, done[0], m.withdrawn)
	}
	e.q.Cancel(3)
	if e.f.Move(0); len(m.lent) != 1 || len(m.diverted) != 1 || m.diverted[0] != m.sent[3].h.InitiatorTaskTag() {
		t.Errorf("%d loans, diverted %v", len(m.lent), m.diverted)
	}
	m.broke = true
	var ping pdu.Header
	ping.Reset(pdu.OpNOPOut)
	ping.SetImmediate(true)
	if before := len(m.sent); len(post(8, 512, 0).data) != 0 || len(m.sent) != before {
		t.Error("a command leaves without credit")
	}
	e.q.Cancel(8)
	if _, err := e.q.Post(Command{ID: 7, Request: &ping}); err != nil || e.f.Move(0) != OK {
		t.Fatal(err)
	}
	m.broke = false
	if e.f.Move(0); m.sent[len(m.sent)-1].h.Opcode() != pdu.OpNOPOut {
		t.Error("a canceled command, or no ping, leaves behind the lack of credit")
	}
	e.q.Cancel(0) // it has no buffers
	if e.f.Move(0); len(m.diverted) != 2 || m.diverted[1] != m.sent[0].h.InitiatorTaskTag() {
		t.Errorf("diverted %v", m.diverted)
	}
	m.full = true
	if before := len(m.sent); len(post(9, 0, 0).data) != 0 || len(m.sent) != before {
		t.Error("a PDU leaves without room")
	}
	m.full, m.fail = false, errors.New("no")
	if why := e.f.Move(0); why == OK || !m.aborted {
		t.Errorf("a PDU that cannot leave: %v", why)
	}
}
