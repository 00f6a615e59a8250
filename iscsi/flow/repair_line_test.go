package flow

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestDamagedLine: reads over a line that damages one PDU of eight. The target of the test
// answers SNACKs. Every command completes with the right octets.
func TestDamagedLine(t *testing.T) {
	luck := rand.New(rand.NewPCG(11, 12))
	p := levelOne()
	p.MaxCmdSN = p.CmdSN + 1<<30
	e := begin(t, p, 8)
	sent := map[pdu.Tag][][]byte{} // Data-In by DataSN
	answers := map[uint32][]byte{} // others by StatSN
	bufs := map[uint64][]byte{}    // by ID
	hears := func(octets []byte) { // through the line
		if h := (*pdu.Header)(octets); h.DataLength() != 0 && luck.IntN(8) == 0 {
			octets = damaged(octets)
		}
		e.hears(octets)
	}
	done, id := 0, uint64(0)
	for done < 1000 {
		if len(bufs) < 8 {
			id++
			bufs[id] = make([]byte, 1+luck.IntN(600))
			for _, c := range e.post(Command{ID: id, CDB: read10, In: [][]byte{bufs[id]}}) {
				e.answer(c, id, sent, answers, luck, hears)
			}
		}
		for _, c := range e.sent() {
			e.answer(c, 0, sent, answers, luck, hears)
		}
		var got [4]Completion
		for _, c := range got[:e.q.Poll(got[:])] {
			done++
			if c.Status() == 0 && (c.Why != OK || !bytes.Equal(bufs[c.ID], pattern(len(bufs[c.ID]), byte(c.ID)))) || c.Status() != 0 && len(c.Sense) != 30 {
				t.Fatalf("%+v", c)
			}
			delete(bufs, c.ID)
		}
		if e.w.aborted {
			t.Fatal(e.f.broken)
		}
	}
	if s := e.f.Stats(); s.Repaired < 150 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// answer is the target of TestDamagedLine. It answers a command with Data-In, or with a
// check condition, and a SNACK with what was asked for.
func (e *end) answer(c caught, id uint64, sent map[pdu.Tag][][]byte, answers map[uint32][]byte, luck *rand.Rand, hears func([]byte)) {
	tag := c.h.InitiatorTaskTag()
	switch {
	case c.h.Opcode() == pdu.OpSNACK && c.h.SNACKType() == pdu.SNACKDataR2T:
		for _, d := range sent[tag][c.h.BegRun():] {
			hears(d)
			if c.h.RunLength() == 1 {
				break
			}
		}
	case c.h.Opcode() == pdu.OpSNACK:
		hears(answers[c.h.BegRun()])
	case luck.IntN(4) == 0:
		sn := uint32(e.statSN)
		answers[sn] = e.response(tag, 2, append([]byte{0, 30}, pattern(30, 1)...))
		hears(answers[sn])
	default:
		data := pattern(int(c.h.EDTL()), byte(id))
		sent[tag] = nil
		for off := 0; off < len(data); off += 100 {
			end, flags := min(off+100, len(data)), pdu.Flags(0)
			if end == len(data) {
				flags = pdu.Final | pdu.StatusPresent
			}
			sent[tag] = append(sent[tag], e.dataIn(tag, uint32(off/100), uint32(off), flags, data[off:end]))
		}
		for _, d := range sent[tag] {
			hears(d)
		}
	}
}
