package flow

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/captures"
)

// session is a captured session behind its login.
type session struct {
	name              string
	requests, answers []caught
	digests           pdu.Digests
}

// TestCaptured plays the targets of the captures: the Initiator sends what the captured
// initiator sent, and hears the captured answers, cut at every octet, and at random.
func TestCaptured(t *testing.T) {
	played := 0
	for name, c := range captures.ISCSI(t) {
		if strings.Contains(name, "probe") || strings.Contains(name, "uiscsi") { // probes break the rules, and the logins of uiscsi fail
			continue
		}
		s := readSession(name, c.Client.Bytes(), c.Server.Bytes())
		if len(s.answers) == 0 {
			continue // the login failed
		}
		for _, cut := range []int{1, 0, 1 << 20} {
			s.play(t, cut)
		}
		played++
	}
	if played < 8 {
		t.Errorf("%d sessions", played)
	}
}

// readSession reads both streams of a connection.
func readSession(name string, client, server []byte) (s session) {
	s.name = name
	client, login := skipLogin(client)
	server, answer := skipLogin(server)
	for key, on := range map[string]*bool{"HeaderDigest=": &s.digests.Header, "DataDigest=": &s.digests.Data} {
		*on = strings.Contains(answer, key+"CRC32C\x00") || strings.Contains(answer, key+"CRC32C,None") && strings.Contains(login, key+"CRC32C\x00")
	}
	s.requests, s.answers = readPDUs(s.digests, client), readPDUs(s.digests, server)
	return s
}

// skipLogin returns what follows the login, and the text of the login.
func skipLogin(b []byte) (rest []byte, text string) {
	for {
		p, _, ok := pdu.Parse(pdu.Digests{}, b)
		if !ok || p.Header().Opcode() != pdu.OpLogin && p.Header().Opcode() != pdu.OpLoginResponse {
			return b, text
		}
		text += string(p.Data())
		b = b[p.Len():]
	}
}

func readPDUs(d pdu.Digests, b []byte) []caught {
	c := newCatcher(d)
	if len(b) != 0 {
		c.r.run(&wire{in: [][]byte{bytes.Clone(b)}})
	}
	return c.got
}

// play plays a session. Each PDU of the target comes in pieces of cut octets; 0 means
// pieces of random length.
func (s *session) play(t *testing.T, cut int) {
	p := usual()
	p.Digests = s.digests
	p.CmdSN, p.MaxCmdSN = s.requests[0].h.CmdSN(), s.requests[0].h.CmdSN()+1000
	p.StatSN = s.requests[0].h.ExpStatSN()
	e := begin(t, p, 256)
	luck := rand.New(rand.NewPCG(1, uint64(cut)))
	tags := map[pdu.Tag]pdu.Tag{} // captured tags of requests in progress
	buffers := map[pdu.Tag][]byte{}
	left := s.requests
	for i, a := range s.answers {
		tag := a.h.InitiatorTaskTag()
		for tag != pdu.NoTag && tags[tag] == 0 {
			if len(left) == 0 {
				t.Fatalf("%s: answer %d has the tag of no request", s.name, i)
			}
			s.request(t, e, left[0], tags, buffers)
			left = left[1:]
		}
		h := a.h
		if tag != pdu.NoTag {
			h.SetInitiatorTaskTag(tags[tag])
		}
		octets := encode(s.digests, h, nil, a.data)
		for len(octets) > 0 {
			n := min(cut, len(octets))
			if cut == 0 {
				n = 1 + luck.IntN(len(octets))
			}
			e.hears(bytes.Clone(octets[:n]))
			octets = octets[n:]
		}
		if e.w.aborted {
			t.Fatalf("%s: answer %d, %v, ends the connection: %v", s.name, i, a.h.Opcode(), e.f.broken)
		}
		if v, ok := e.event(); ok && v.Why != OK {
			t.Fatalf("%s: answer %d, %v, is refused: %v", s.name, i, a.h.Opcode(), v.Why)
		}
		e.sent()
		if a.h.Opcode() == pdu.OpDataIn && !bytes.Equal(buffers[tag][a.h.BufferOffset():][:len(a.data)], a.data) {
			t.Fatalf("%s: the data of answer %d is wrong", s.name, i)
		}
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

// request posts a captured request, and compares what leaves.
func (s *session) request(t *testing.T, e *end, r caught, tags map[pdu.Tag]pdu.Tag, buffers map[pdu.Tag][]byte) {
	tag := r.h.InitiatorTaskTag()
	if r.h.Opcode() == pdu.OpDataOut || tag == pdu.NoTag {
		return // the Initiator answers R2Ts and pings by itself
	}
	c := Command{ID: uint64(tag), LUN: r.h.LUN(), CDB: r.h.CDB(), Attribute: r.h.Attribute()}
	buf := make([]byte, 8192)
	switch {
	case r.h.Opcode() != pdu.OpCommand:
		c.Request, c.CDB, c.Out, c.In = &r.h, nil, [][]byte{r.data}, [][]byte{buf}
	case r.h.Has(pdu.Write):
		buf = make([]byte, r.h.EDTL())
		copy(buf, r.data)
		c.Out = [][]byte{buf}
	case r.h.Has(pdu.Read):
		buf = make([]byte, r.h.EDTL())
		c.In = [][]byte{buf}
	}
	buffers[tag] = buf
	got := e.post(c)
	if len(got) != 1 {
		t.Fatalf("%s: %d PDUs leave for a request", s.name, len(got))
	}
	h, want := got[0].h, r.h
	tags[tag] = h.InitiatorTaskTag()
	want.SetInitiatorTaskTag(h.InitiatorTaskTag())
	want.SetExpStatSN(h.ExpStatSN())                                                    // the captured initiator may have heard less by then
	want.SetDataLength(h.DataLength())                                                  // it may have chosen another length of immediate data
	want.SetFlags(h.Flags()&^pdu.Read & ^pdu.Write | want.Flags()&(pdu.Read|pdu.Write)) // R with EDTL 0
	if h != want {
		t.Fatalf("%s: sent\n%x, the captured request is\n%x", s.name, h, want)
	}
}
