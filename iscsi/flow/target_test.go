package flow

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// onBoth runs a test with a disk that lends its memory, and with one that does not.
func onBoth(t *testing.T, change func(*login.Params), run func(s *server)) {
	for _, lends := range []bool{true, false} {
		t.Run(fmt.Sprintf("lends=%v", lends), func(t *testing.T) {
			p := usualTarget()
			if change != nil {
				change(&p)
			}
			s := serve(t, p, lends)
			run(s)
			s.idle()
		})
	}
}

// TestTargetRead: Data-In of the initiator's length, in sequences of MaxBurstLength. The
// last one has the status (RFC 7143 §11.7.3).
func TestTargetRead(t *testing.T) {
	onBoth(t, func(p *login.Params) { p.MaxSendLength, p.MaxBurstLength = 3000, 4096 }, func(s *server) {
		copy(s.disk.buf, pattern(10240, 3))
		got := s.hears(s.command(7, cdb10(0x28, 4, 16), pdu.Final|pdu.Read, 8192, nil))
		var data []byte
		for i, p := range got {
			h := &p.h
			last := i == len(got)-1
			ends := int(h.BufferOffset())+len(p.data) == 4096 || last
			if h.Opcode() != pdu.OpDataIn || h.InitiatorTaskTag() != 7 || h.DataSN() != uint32(i) || int(h.BufferOffset()) != len(data) || h.Final() != ends || h.Has(pdu.StatusPresent) != last {
				t.Fatalf("PDU %d: %x", i, h)
			}
			data = append(data, p.data...)
		}
		if !bytes.Equal(data, s.blocks(4, 16)) {
			t.Error("other octets")
		}
		h := got[len(got)-1].h
		if h.StatSN() != s.p.StatSN || h.ExpCmdSN() != s.cmdSN || h.MaxCmdSN() != s.cmdSN+serverWindow-1 {
			t.Errorf("numbers %x", h)
		}
	})
}

// TestTargetResiduals: the counts of RFC 7143 §11.4.5 in the PDU with the status.
func TestTargetResiduals(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		for _, c := range []struct {
			n, edtl int
			flag    pdu.Flags
			count   uint32
		}{{8, 512, pdu.Overflow, 3584}, {1, 4096, pdu.Underflow, 3584}, {1, 512, 0, 0}} {
			p := s.one(s.hears(s.command(1, cdb10(0x28, 0, c.n), pdu.Final|pdu.Read, c.edtl, nil)), pdu.OpDataIn)
			if p.h.Flags() != pdu.Final|pdu.StatusPresent|c.flag || p.h.Residual() != c.count || len(p.data) != min(c.n*512, c.edtl) {
				t.Errorf("%d blocks, EDTL %d: %x", c.n, c.edtl, p.h)
			}
		}
		p := s.one(s.hears(s.command(1, cdb10(0x28, 0, 1), pdu.Final|pdu.Write, 512, pattern(512, 1))), pdu.OpResponse)
		if p.h.Status() != 0 || p.h.Residual() != 512 {
			t.Errorf("a read that is flagged as a write: %x", p.h)
		}
		s.status(s.hears(s.command(1, cdb10(0x2a, 0, 1), pdu.Final|pdu.Read, 512, nil)), unit.CheckCondition, scsi.InvalidFieldInInformationUnit)
		s.status(s.hears(s.command(1, cdb10(0x28, 0, 1), pdu.Final|pdu.Read|pdu.Write, 512, nil)), unit.CheckCondition, scsi.InvalidFieldInInformationUnit)
	})
}

// TestTargetWrite: immediate data, then an R2T for each MaxBurstLength, each under its own
// tag.
func TestTargetWrite(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		want := pattern(20*512, 5)
		r2t := s.one(s.hears(s.write(9, 100, 20, want[:1000])), pdu.OpR2T)
		var tags []pdu.Tag
		off := 1000
		for sn := uint32(0); ; sn++ {
			h := &r2t.h
			n := min(8192, len(want)-off)
			if h.InitiatorTaskTag() != 9 || h.R2TSN() != sn || int(h.BufferOffset()) != off || int(h.DesiredLength()) != n || h.LUN() != 1<<48 || h.StatSN() != s.p.StatSN {
				t.Fatalf("R2T %x", h)
			}
			tags = append(tags, h.TargetTransferTag())
			half := n / 2
			if got := s.hears(s.dataOut(h, 0, off, false, want[off:off+half])); len(got) != 0 {
				t.Fatalf("sent %v in the middle of a sequence", opcodes(got))
			}
			got := s.hears(s.dataOut(h, 1, off+half, true, want[off+half:off+n]))
			if off += n; off == len(want) {
				s.status(got, unit.Good, 0)
				break
			}
			r2t = s.one(got, pdu.OpR2T)
		}
		if len(tags) != 2 || tags[0] == tags[1] {
			t.Errorf("tags %x", tags)
		}
		if !bytes.Equal(s.blocks(100, 20), want) {
			t.Error("other octets on the disk")
		}
	})
}

// TestTargetUnsolicited: Data-Out without R2T, up to FirstBurstLength (RFC 7143 §4.2.5.2).
func TestTargetUnsolicited(t *testing.T) {
	onBoth(t, func(p *login.Params) { p.InitialR2T = false }, func(s *server) {
		want := pattern(4096, 6)
		out := func(sn uint32, off int, final bool, b []byte) []byte {
			var h pdu.Header
			h.SetInitiatorTaskTag(3)
			h.SetTargetTransferTag(pdu.NoTag)
			return s.dataOut(&h, sn, off, final, b)
		}
		if got := s.hears(s.command(3, cdb10(0x2a, 0, 8), pdu.Write, 4096, want[:512]), out(0, 512, false, want[512:2000])); len(got) != 0 {
			t.Fatal(opcodes(got))
		}
		s.status(s.hears(out(1, 2000, true, want[2000:])), unit.Good, 0)
		if !bytes.Equal(s.blocks(0, 8), want) {
			t.Error("other octets on the disk")
		}
		reject := s.one(s.hears(out(2, 0, true, want[:512])), pdu.OpReject)
		if reject.h.RejectReason() != pdu.RejectProtocolError || len(reject.data) != pdu.HeaderLen {
			t.Errorf("Reject %x", reject.h)
		}
	})
}

// TestLyingInitiator: Data-Out that is not as the R2T says. The command fails when its
// sequence is over, and no octet outside of its blocks changes.
func TestLyingInitiator(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *pdu.Header)
		answer pdu.Opcode // to the wrong PDU; 0: none
		ends   bool       // the command has ended
	}{
		"wrong key":        {func(h *pdu.Header) { h.SetTargetTransferTag(h.TargetTransferTag() ^ 0x10) }, 0, false},
		"wrong index":      {func(h *pdu.Header) { h.SetTargetTransferTag(h.TargetTransferTag() ^ 0x100000) }, pdu.OpReject, false},
		"another task":     {func(h *pdu.Header) { h.SetInitiatorTaskTag(99) }, pdu.OpReject, false},
		"no such task":     {func(h *pdu.Header) { h.SetTargetTransferTag(pdu.NoTag) }, pdu.OpReject, false},
		"DataSN":           {func(h *pdu.Header) { h.SetDataSN(5) }, pdu.OpResponse, true},
		"offset before":    {func(h *pdu.Header) { h.SetBufferOffset(0) }, pdu.OpResponse, true},
		"offset behind":    {func(h *pdu.Header) { h.SetBufferOffset(8192) }, pdu.OpResponse, true},
		"beyond the end":   {func(h *pdu.Header) { h.SetBufferOffset(1<<20 - 512) }, pdu.OpResponse, true},
		"near 2^32":        {func(h *pdu.Header) { h.SetBufferOffset(0xfffffe00) }, pdu.OpResponse, true},
		"final is missing": {func(h *pdu.Header) { h.SetFlags(0) }, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, nil, func(s *server) {
				r2t := s.one(s.hears(s.write(4, 8, 2, pattern(512, 1))), pdu.OpR2T)
				before := s.blocks(9, serverBlocks-9)
				h := r2t.h
				bad := s.dataOut(&h, 0, 512, true, pattern(512, 2))
				c.change((*pdu.Header)(bad))
				outside := (*pdu.Header)(bad).BufferOffset() > 512
				got := s.hears(bad)
				if c.answer == 0 && len(got) != 0 || c.answer != 0 && s.one(got, c.answer) == nil {
					t.Fatal(opcodes(got))
				}
				if !bytes.Equal(before, s.blocks(9, serverBlocks-9)) && name != "final is missing" {
					t.Error("octets of the disk have changed")
				}
				if c.ends {
					s.status(got, unit.CheckCondition, map[bool]scsi.Code{true: scsi.NotEnoughUnsolicitedData, false: scsi.ProtocolServiceCRCError}[outside])
					return
				}
				sn, off := uint32(0), 512
				data := pattern(512, 2)
				if name == "final is missing" {
					sn, off, data = 1, 1024, nil
				}
				got = s.hears(s.dataOut(&h, sn, off, true, data))
				want, code := unit.Good, scsi.Code(0)
				if name == "final is missing" {
					want, code = unit.CheckCondition, scsi.ProtocolServiceCRCError
				}
				s.status(got, want, code)
			})
		})
	}
}

// TestTargetStaleTag: a tag of an R2T that was answered is refused without a word.
func TestTargetStaleTag(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		h := s.one(s.hears(s.write(4, 8, 2, nil)), pdu.OpR2T).h
		s.status(s.hears(s.dataOut(&h, 0, 0, true, pattern(1024, 2))), unit.Good, 0)
		before := s.blocks(0, serverBlocks)
		if got := s.hears(s.dataOut(&h, 0, 0, true, pattern(1024, 3))); len(got) != 0 {
			t.Fatal(opcodes(got))
		}
		if !bytes.Equal(before, s.blocks(0, serverBlocks)) {
			t.Error("a stale tag has changed the disk")
		}
	})
}

// TestTargetDataDigest: the command fails, and the connection goes on (RFC 7143 §7.8).
func TestTargetDataDigest(t *testing.T) {
	onBoth(t, func(p *login.Params) { p.Digests = both }, func(s *server) {
		flip := func(b []byte) []byte { b[len(b)-5] ^= 1; return b }
		s.status(s.hears(flip(s.write(1, 0, 1, pattern(512, 1)))), unit.CheckCondition, scsi.ProtocolServiceCRCError)
		if !bytes.Equal(s.blocks(0, 1), make([]byte, 512)) {
			t.Error("octets with a wrong digest are on the disk")
		}
		h := s.one(s.hears(s.write(1, 0, 2, nil)), pdu.OpR2T).h
		if got := s.hears(flip(s.dataOut(&h, 0, 0, false, pattern(512, 1)))); len(got) != 0 {
			t.Fatal(opcodes(got))
		}
		s.status(s.hears(s.dataOut(&h, 1, 512, true, pattern(512, 1))), unit.CheckCondition, scsi.ProtocolServiceCRCError)
		s.status(s.hears(s.write(1, 0, 1, pattern(512, 4))), unit.Good, 0)
		bad := s.pdu(pdu.OpNOPOut, 5, nil, []byte("ping"))
		bad[len(bad)-5] ^= 1
		s.w.in = append(s.w.in, bad)
		s.ulp.Receive(1, s.w)
		if s.tgt.broken != ControlDigest || !s.w.aborted {
			t.Errorf("a ping with a wrong digest: %v", s.tgt.broken)
		}
		s.tgt.release(s.tgt.present)
	})
}

// TestTargetWindow: CmdSN outside of the window and duplicates are ignored; a gap ends the
// connection, because nothing can fill it (RFC 7143 §4.2.2.1).
func TestTargetWindow(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		tur := func(sn func()) []caught {
			sn()
			return s.hears(s.command(1, make([]byte, 6), pdu.Final, 0, nil))
		}
		s.status(tur(func() {}), unit.Good, 0)
		good := s.cmdSN
		for name, sn := range map[string]func(){"duplicate": func() { s.cmdSN-- }, "behind the window": func() { s.cmdSN += serverWindow }} {
			if got := tur(sn); len(got) != 0 {
				t.Errorf("%s: %v", name, opcodes(got))
			}
			s.cmdSN = good
		}
		s.status(tur(func() {}), unit.Good, 0)
		tur(func() { s.cmdSN++ })
		if s.tgt.broken != CmdSNGap {
			t.Errorf("a gap: %v", s.tgt.broken)
		}
	})
}

// TestTargetFull: a target with all slots taken closes the window, and rejects immediate
// commands.
func TestTargetFull(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		var r2ts []caught
		for i := range serverWindow {
			r2ts = append(r2ts, s.hears(s.write(pdu.Tag(i), i, 1, nil))...)
		}
		last := r2ts[len(r2ts)-1].h
		if len(r2ts) != serverWindow || last.MaxCmdSN() != last.ExpCmdSN()-1 {
			t.Fatalf("%d R2Ts, window %x to %x", len(r2ts), last.ExpCmdSN(), last.MaxCmdSN())
		}
		immediate := func(tag pdu.Tag) []caught {
			b := s.command(tag, cdb10(0x2a, 20, 1), pdu.Final|pdu.Write, 512, nil)
			s.cmdSN--
			(*pdu.Header)(b).SetImmediate(true)
			return s.hears(b)
		}
		for i := range 4 {
			r2ts = append(r2ts, *s.one(immediate(pdu.Tag(50+i)), pdu.OpR2T))
		}
		if got := immediate(60); len(got) != 0 { // no slot is left for the Reject either
			t.Fatal(opcodes(got))
		}
		for _, r := range r2ts {
			s.status(s.hears(s.dataOut(&r.h, 0, 0, true, pattern(512, 1))), unit.Good, 0)
		}
	})
}

// TestTargetControl: pings, text, and requests that error recovery level 0 does not have.
func TestTargetControl(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		p := s.one(s.hears(s.pdu(pdu.OpNOPOut, 5, func(h *pdu.Header) { h.SetImmediate(true) }, []byte("ping"))), pdu.OpNOPIn)
		if string(p.data) != "ping" || p.h.InitiatorTaskTag() != 5 || p.h.TargetTransferTag() != pdu.NoTag {
			t.Errorf("NOP-In %x, %q", p.h, p.data)
		}
		if got := s.hears(s.pdu(pdu.OpNOPOut, pdu.NoTag, func(h *pdu.Header) { h.SetImmediate(true) }, nil)); len(got) != 0 {
			t.Error(opcodes(got))
		}
		p = s.one(s.hears(s.pdu(pdu.OpText, 6, func(h *pdu.Header) { h.SetTargetTransferTag(pdu.NoTag) }, []byte("a=b\x00"))), pdu.OpTextResponse)
		if string(p.data) != "X-test=a=b\x00" {
			t.Errorf("Text Response %q", p.data)
		}
		s.one(s.hears(s.pdu(pdu.OpText, 7, func(h *pdu.Header) { h.SetFlags(pdu.Continue) }, []byte("a=b\x00"))), pdu.OpReject)
		p = s.one(s.hears(s.pdu(pdu.OpText, 7, func(h *pdu.Header) { h.SetTargetTransferTag(pdu.NoTag) }, []byte("No=b\x00"))), pdu.OpReject)
		if p.h.RejectReason() != pdu.RejectProtocolError || (*pdu.Header)(p.data).InitiatorTaskTag() != 7 {
			t.Errorf("Reject %x, %x", p.h, p.data)
		}
		if s.tgt.windows != 0 {
			t.Error("a Reject takes a place of the window")
		}
		if got := s.hears(s.command(7, cdb10(0x28, 0, 4), pdu.Final|pdu.Read, 2048, nil)); len(got) != 3 || len(got[0].data) != 1000 {
			t.Errorf("sent %v with a limit of 1000 octets", opcodes(got))
		}
		p = s.one(s.hears(s.pdu(pdu.OpSNACK, 6, nil, nil)), pdu.OpReject)
		if p.h.RejectReason() != pdu.RejectSNACK {
			t.Errorf("reason %#x", p.h.RejectReason())
		}
		h := s.one(s.hears(s.write(4, 8, 2, nil)), pdu.OpR2T).h
		p = s.one(s.hears(s.pdu(pdu.OpLogout, 8, func(h *pdu.Header) { h.SetLogoutReason(pdu.CloseSession) }, nil)), pdu.OpLogoutResponse)
		if p.h.Response() != pdu.LogoutClosed || !s.w.closed {
			t.Errorf("Logout Response %x, closed %v", p.h, s.w.closed)
		}
		if got := s.hears(s.dataOut(&h, 0, 0, true, pattern(1024, 1)), s.command(1, make([]byte, 6), pdu.Final, 0, nil)); len(got) != 0 {
			t.Error(opcodes(got))
		}
		s.ulp.Fault(1, nil)
		s.tgt.cfg.Board.Deliver()
		if orderly, _, _ := s.tgt.Over(); !orderly || s.ended != 1 {
			t.Errorf("orderly %v, ended %d times", orderly, s.ended)
		}
	})
}

// TestTargetAllocatesNothing for reads and writes of a disk that lends its memory.
func TestTargetAllocatesNothing(t *testing.T) {
	s := serve(t, usualTarget(), true)
	in := make([][]byte, 1)
	tag := pdu.Tag(0)
	step := func(b []byte) {
		h := (*pdu.Header)(b)
		h.SetCmdSN(s.tgt.sn.expCmdSN)
		h.SetInitiatorTaskTag(tag)
		tag++
		in[0] = b
		s.w.in, s.w.out = in, s.w.out[:0]
		s.ulp.Receive(1, s.w)
		s.ulp.Transmit(1, s.w)
	}
	read := s.command(1, cdb10(0x28, 0, 8), pdu.Final|pdu.Read, 4096, nil)
	write := s.write(1, 0, 8, pattern(4096, 1))
	for range 50 {
		step(read)
		step(write)
	}
	if n := testing.AllocsPerRun(100, func() { step(read); step(write) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTargetCourses runs random commands, cut anywhere, against a model of the disk.
func TestTargetCourses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := usualTarget()
		p.InitialR2T = rapid.Bool().Draw(rt, "InitialR2T")
		p.ImmediateData = rapid.Bool().Draw(rt, "ImmediateData")
		p.Digests = pdu.Digests{Header: rapid.Bool().Draw(rt, "hd"), Data: rapid.Bool().Draw(rt, "dd")}
		s := serve(rt, p, rapid.Bool().Draw(rt, "lends"))
		s.lazy = true
		c := &course{server: s, model: make([]byte, serverBlocks*512), open: map[pdu.Tag]*courseTask{}}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			c.step(rt)
		}
		for len(c.open) != 0 {
			c.finish()
		}
		if !bytes.Equal(s.disk.buf, c.model) {
			rt.Fatal("the disk differs from the model")
		}
		s.idle()
	})
}

// TestTargetHugeAllocation: an allocation length and an EDTL of nearly 4 GiB for a command
// that has few octets. The command gets memory for what the unit transfers at most, whether
// the initiator expects data, or sends some that nobody asked for.
func TestTargetHugeAllocation(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		reportLUNs := []byte{0xa0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0}
		p := s.one(s.hears(s.command(1, reportLUNs, pdu.Final|pdu.Read, 0xffffffff, nil)), pdu.OpDataIn)
		if len(p.data) != 16 || p.h.Residual() != 0xffffffff-16 {
			t.Errorf("%d octets, residual %d", len(p.data), p.h.Residual())
		}
		p = s.one(s.hears(s.command(2, reportLUNs, pdu.Final|pdu.Write, 0xffffffff, make([]byte, 4))), pdu.OpResponse)
		if p.h.Status() != 0 {
			t.Errorf("status %#x", p.h.Status())
		}
	})
}
