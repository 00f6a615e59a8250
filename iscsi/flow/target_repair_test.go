package flow

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/seq"
)

// targetLevelOne are the parameters of a target at error recovery level 1.
func targetLevelOne() login.Params {
	p := usualTarget()
	p.Digests, p.ErrorRecoveryLevel = both, 1
	p.MaxSendLength = 1000
	return p
}

// snack returns a SNACK Request.
func (s *server) snack(kind pdu.SNACKType, itt, ttt pdu.Tag, first, n uint32) []byte {
	return s.pdu(pdu.OpSNACK, itt, func(h *pdu.Header) {
		h.SetSNACKType(kind)
		h.SetTargetTransferTag(ttt)
		h.SetBegRun(first)
		h.SetRunLength(n)
		h.SetExpStatSN(s.p.StatSN)
	}, nil)
}

// replica fails unless a PDU is the same as before, but for ExpCmdSN and MaxCmdSN.
func (s *server) replica(got, want *caught) {
	s.t.Helper()
	a, b := got.h, want.h
	for _, h := range []*pdu.Header{&a, &b} {
		h.SetExpCmdSN(0)
		h.SetMaxCmdSN(0)
	}
	if a != b || !bytes.Equal(got.data, want.data) {
		s.t.Fatalf("sent\n% x, want\n% x (%d and %d octets, equal %v)", a, b, len(got.data), len(want.data), bytes.Equal(got.data, want.data))
	}
}

// acknowledge sends a ping that acknowledges every status, and its answer too.
func (s *server) acknowledge() {
	s.t.Helper()
	for range 2 {
		s.hears(s.pdu(pdu.OpNOPOut, pdu.NoTag, func(h *pdu.Header) {
			h.SetImmediate(true)
			h.SetTargetTransferTag(7)
			h.SetExpStatSN(s.tgt.sn.statSN)
		}, nil))
	}
}

// TestSNACKs: Data-In, statuses and R2Ts leave again as they were.
func TestSNACKs(t *testing.T) {
	s := serve(t, targetLevelOne(), true)
	copy(s.disk.buf, pattern(64<<10, 3))
	tag := pdu.Tag(1)
	read := s.hears(s.command(tag, cdb10(0x28, 0, 18), pdu.Final|pdu.Read, 18*512, nil)) // 9216 octets, MaxBurstLength 8192
	if len(read) != 11 {
		t.Fatalf("%d Data-In", len(read))
	}
	s.p.StatSN = seq.Num(read[10].h.StatSN())
	clear(s.disk.buf) // the octets are those of the first time
	for _, c := range []struct{ first, n, want uint32 }{{0, 1, 1}, {3, 4, 4}, {7, 0, 4}, {0, 0, 11}, {10, 1, 1}} {
		got := s.hears(s.snack(pdu.SNACKDataR2T, tag, pdu.NoTag, c.first, c.n))
		if len(got) != int(c.want) {
			t.Fatalf("%+v: %d PDUs", c, len(got))
		}
		for i := range got {
			s.replica(&got[i], &read[int(c.first)+i])
		}
	}
	status := s.one(s.hears(s.snack(pdu.SNACKStatus, pdu.NoTag, pdu.NoTag, uint32(s.p.StatSN), 1)), pdu.OpDataIn)
	s.replica(status, &read[10])

	bad := s.one(s.hears(s.command(2, []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, pdu.Final, 0, nil)), pdu.OpResponse)
	again := s.hears(s.snack(pdu.SNACKStatus, pdu.NoTag, pdu.NoTag, 0, 0))
	if len(again) != 2 {
		t.Fatalf("%v", opcodes(again))
	}
	s.replica(&again[0], &read[10])
	s.replica(&again[1], bad)

	r2t := s.one(s.hears(s.write(3, 40, 2, nil)), pdu.OpR2T)
	s.replica(s.one(s.hears(s.snack(pdu.SNACKDataR2T, 3, pdu.NoTag, 0, 1)), pdu.OpR2T), r2t)
	s.status(s.hears(s.dataOut(&r2t.h, 0, 0, true, pattern(1024, 9))), unit.Good, 0)
	if !bytes.Equal(s.blocks(40, 2), pattern(1024, 9)) {
		t.Error("wrong octets")
	}
	if resent := s.tgt.Stats().Resent; resent != 21+1+2+1 {
		t.Errorf("%d PDUs were sent again", resent)
	}
	s.acknowledge()
	s.idle()
}

// TestRefusedSNACKs: what was never sent, or was acknowledged, is rejected, and so is what
// another level does not have.
func TestRefusedSNACKs(t *testing.T) {
	s := serve(t, targetLevelOne(), true)
	read := s.hears(s.command(1, cdb10(0x28, 0, 2), pdu.Final|pdu.Read, 1024, nil))
	for i, c := range []struct {
		snack []byte
		why   pdu.RejectReason
	}{
		{s.snack(pdu.SNACKDataR2T, 1, pdu.NoTag, 2, 1), pdu.RejectProtocolError},
		{s.snack(pdu.SNACKDataR2T, 1, pdu.NoTag, 0xffffffff, 3), pdu.RejectProtocolError},
		{s.snack(pdu.SNACKDataR2T, 9, pdu.NoTag, 0, 1), pdu.RejectSNACK},
		{s.snack(pdu.SNACKStatus, pdu.NoTag, pdu.NoTag, uint32(s.tgt.sn.statSN)+100, 1), pdu.RejectSNACK},
		{s.snack(pdu.SNACKStatus, pdu.NoTag, pdu.NoTag, uint32(read[1].h.StatSN()), 0xffffffff), pdu.RejectSNACK},
		{s.snack(pdu.SNACKDataACK, pdu.NoTag, 5, 1, 0), pdu.RejectInvalidDataACK},
		{s.snack(pdu.SNACKRData, 9, 5, 0, 0), pdu.RejectSNACK},
		{s.snack(9, 1, 5, 0, 0), pdu.RejectProtocolError},
	} {
		if got := s.one(s.hears(c.snack), pdu.OpReject); got.h.RejectReason() != c.why || !bytes.Equal(got.data, c.snack[:pdu.HeaderLen]) {
			t.Errorf("case %d: %#02x, % x", i, uint8(got.h.RejectReason()), got.data)
		}
	}
	s.acknowledge()
	if got := s.one(s.hears(s.snack(pdu.SNACKDataR2T, 1, pdu.NoTag, 0, 1)), pdu.OpReject); got.h.RejectReason() != pdu.RejectSNACK {
		t.Errorf("acknowledged data: %#02x", uint8(got.h.RejectReason()))
	}
	s.acknowledge()
	s.idle()

	zero := serve(t, usualTarget(), true)
	zero.hears(zero.command(1, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil))
	if got := zero.one(zero.hears(zero.snack(pdu.SNACKDataR2T, 1, pdu.NoTag, 0, 1)), pdu.OpReject); got.h.RejectReason() != pdu.RejectSNACK {
		t.Errorf("level 0: %#02x", uint8(got.h.RejectReason()))
	}
}

// TestRData: the initiator takes shorter Data-In from now on, and wants all of them again.
// The status comes in a SCSI Response with the SNACK Tag and the same StatSN.
func TestRData(t *testing.T) {
	s := serve(t, targetLevelOne(), false)
	copy(s.disk.buf, pattern(4096, 3))
	read := s.hears(s.command(1, cdb10(0x28, 0, 4), pdu.Final|pdu.Read, 2048, nil))
	s.p.StatSN = read[2].h.StatSN()
	s.tgt.most = 512
	got := s.hears(s.snack(pdu.SNACKRData, 1, 77, 0, 0))
	if len(got) != 5 || got[4].h.Opcode() != pdu.OpResponse || got[4].h.SNACKTag() != 77 || got[4].h.StatSN() != s.p.StatSN || got[4].h.Status() != 0 {
		t.Fatalf("%v", opcodes(got))
	}
	for i, p := range got[:4] {
		if p.h.DataSN() != uint32(i) || p.h.BufferOffset() != uint32(i*512) || p.h.Has(pdu.StatusPresent) || p.h.Final() != (i == 3) || !bytes.Equal(p.data, s.blocks(i, 1)) {
			t.Errorf("Data-In %d: % x", i, p.h)
		}
	}
	s.acknowledge()
	s.idle()
}

// TestDamagedDataOut: immediate, unsolicited and solicited data come again if they were
// damaged, and the command succeeds.
func TestDamagedDataOut(t *testing.T) {
	p := targetLevelOne()
	p.InitialR2T = false
	s := serve(t, p, true)
	data := pattern(6*512, 5)
	write := func() []byte { return cdb10(0x2a, 8, 6) }
	// immediate data
	r2t := s.one(s.hears(damaged(s.command(1, write(), pdu.Final|pdu.Write, len(data), data[:1024]))), pdu.OpR2T)
	if r2t.h.BufferOffset() != 0 || r2t.h.DesiredLength() != uint32(len(data)) {
		t.Fatalf("R2T of %d at %d", r2t.h.DesiredLength(), r2t.h.BufferOffset())
	}
	// solicited data
	got := s.hears(damaged(s.dataOut(&r2t.h, 0, 0, false, data[:1024])), s.dataOut(&r2t.h, 1, 1024, true, data[1024:]))
	if len(got) != 2 || got[0].h.Opcode() != pdu.OpReject || got[0].h.RejectReason() != pdu.RejectDataDigest {
		t.Fatalf("%v", opcodes(got))
	}
	r2t = s.one(got[1:], pdu.OpR2T)
	s.status(s.hears(s.dataOut(&r2t.h, 0, 0, true, data)), unit.Good, 0)
	if !bytes.Equal(s.blocks(8, 6), data) {
		t.Error("wrong octets")
	}
	// unsolicited data
	clear(s.disk.buf)
	s.hears(s.command(2, write(), pdu.Write, len(data), nil))
	unasked := func(sn uint32, off, end int) []byte {
		return s.pdu(pdu.OpDataOut, 2, func(h *pdu.Header) {
			h.SetFlags(0)
			if end == len(data) {
				h.SetFlags(pdu.Final)
			}
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetDataSN(sn)
			h.SetBufferOffset(uint32(off))
		}, data[off:end])
	}
	got = s.hears(damaged(unasked(0, 0, 512)), unasked(1, 512, len(data)))
	if len(got) != 2 || got[0].h.Opcode() != pdu.OpReject {
		t.Fatalf("%v", opcodes(got))
	}
	r2t = s.one(got[1:], pdu.OpR2T)
	// a line that damages everything
	for range mostAsks - 1 {
		got = s.hears(damaged(s.dataOut(&r2t.h, 0, 0, true, data)))
		r2t = s.one(got[1:], pdu.OpR2T)
	}
	got = s.hears(damaged(s.dataOut(&r2t.h, 0, 0, true, data)))
	s.status(got[1:], unit.CheckCondition, scsi.ProtocolServiceCRCError)
	if asked := s.tgt.Stats().AskedAgain; asked != 2+mostAsks {
		t.Errorf("asked again %d times", asked)
	}
	s.acknowledge()
	s.idle()
}

// TestEviction: an initiator that acknowledges nothing cannot keep others from slots and
// memory.
func TestEviction(t *testing.T) {
	s := serve(t, targetLevelOne(), false)
	for i := range 200 {
		got := s.hears(s.command(pdu.Tag(i), cdb10(0x28, 0, 256), pdu.Final|pdu.Read, 256*512, nil))
		if last := got[len(got)-1]; !last.h.Has(pdu.StatusPresent) || last.h.Status() != 0 {
			t.Fatalf("command %d: %v", i, last.h)
		}
	}
	s.acknowledge()
	s.idle()
}

// line carries PDUs between an Initiator and a Target, and damages some.
type line struct {
	luck  *rand.Rand
	hurts int // one PDU of so many with data is damaged
}

func (l *line) carry(list []caught) (octets [][]byte) {
	for _, c := range list {
		b := encode(both, c.h, c.ahs, c.data)
		if len(c.data) != 0 && l.luck.IntN(l.hurts) == 0 {
			b = damaged(b)
		}
		octets = append(octets, b)
	}
	return octets
}

// TestDamagedBothWays: an Initiator and a Target at level 1 over a line that damages one PDU
// of six. All commands succeed with the right octets, and the connection goes on.
func TestDamagedBothWays(t *testing.T) {
	for _, lends := range []bool{false, true} {
		for _, unsolicited := range []bool{false, true} {
			t.Run(fmt.Sprint(lends, unsolicited), func(t *testing.T) { damagedBothWays(t, lends, unsolicited) })
		}
	}
}

func damagedBothWays(t *testing.T, lends, unsolicited bool) {
	l := &line{rand.New(rand.NewPCG(5, 6)), 6}
	p := targetLevelOne()
	p.InitialR2T, p.MaxOutstandingR2T = !unsolicited, 1
	s := serve(t, p, lends)
	q := p
	q.MaxSendLength, q.MaxRecvLength = 1000, 1<<18
	e := begin(t, q, 8)
	const area = 32 // blocks of each command
	model, bufs := make([]byte, 8*area*512), map[uint64][]byte{}
	busy := map[int]bool{}
	place := map[uint64]int{}
	done, id := 0, uint64(0)
	for done < 600 {
		for len(bufs) < 6 {
			at := l.luck.IntN(8)
			for busy[at] {
				at = (at + 1) % 8
			}
			id++
			n := 1 + l.luck.IntN(area)
			c := Command{ID: id, LUN: 1 << 48, CDB: cdb10(0x28, at*area, n)}
			bufs[id], busy[at], place[id] = make([]byte, n*512), true, at
			if l.luck.IntN(2) == 0 {
				c.CDB[0] = 0x2a
				copy(bufs[id], pattern(n*512, byte(id)))
				copy(model[at*area*512:], bufs[id])
				c.Out = [][]byte{bufs[id]}
			} else {
				c.In = [][]byte{bufs[id][:100], bufs[id][100:]}
			}
			if _, err := e.q.Post(c); err != nil {
				t.Fatal(err)
			}
		}
		for _, octets := range l.carry(s.hears(l.carry(e.sent())...)) {
			e.hears(octets)
		}
		for {
			if _, ok := e.event(); !ok {
				break
			}
		}
		if e.w.aborted || s.w.aborted {
			t.Fatalf("the connection has ended: %v, %v", e.f.broken, s.tgt.broken)
		}
		var got [4]Completion
		for _, c := range got[:e.q.Poll(got[:])] {
			at := place[c.ID]
			if c.Why != OK || c.Status() != 0 || !bytes.Equal(bufs[c.ID], model[at*area*512:][:len(bufs[c.ID])]) {
				t.Fatalf("command %d: %v, status %#x, sense % x, %+v, %+v", c.ID, c.Why, c.Status(), c.Sense, e.f.Stats(), s.tgt.Stats())
			}
			delete(bufs, c.ID)
			busy[at] = false
			done++
		}
	}
	if !bytes.Equal(s.disk.buf[:len(model)], model) && len(bufs) == 0 {
		t.Error("the disk has wrong octets")
	}
	f, g := e.f.Stats(), s.tgt.Stats()
	if f.Repaired < 100 || g.AskedAgain < 100 || g.Resent < 100 {
		t.Errorf("too little was damaged: %+v, %+v", f, g)
	}
}
