package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

func withRFC7306(s *setup) { s.agree.RFC7306 = true }

func withImm(id, data uint64, solicited bool) work.Completion {
	return work.Completion{ID: id, Op: work.WCRecvImm, WithImm: true, Imm: data, Solicited: solicited}
}

// A Write with Immediate is a Write and Immediate Data behind it, with one completion. An
// empty Write is left out.
func TestWriteImmSent(t *testing.T) { // RFC 7306 §6
	s := open(t, withRFC7306, withEMSS(100))
	wr := work.SendWR{ID: 1, Op: work.WRWriteImm, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 90)}, RKey: 5, RemoteAddr: 9, Imm: 0x1122334455667788}
	s.posts(wr)
	s.sends(tagged(wire.OpWrite, false, 5, 9, pattern(0, 80)), tagged(wire.OpWrite, true, 5, 9+80, pattern(80, 10)), immediate(1, false, 0x1122334455667788))
	s.completes(ok(1, work.WCWrite))
	s.posts(work.SendWR{ID: 2, Op: work.WRWriteImm, Flags: work.Signaled | work.Solicited, Inline: []byte("ab"), RKey: 5, RemoteAddr: 9, Imm: 3},
		work.SendWR{ID: 3, Op: work.WRWriteImm, Flags: work.Signaled, RKey: 5, Imm: 4},
		work.SendWR{ID: 4, Op: work.WRSendImm, Imm: 5}, work.SendWR{ID: 5, Op: work.WRSendImm, Flags: work.Signaled | work.Solicited, Imm: 6})
	s.sends(write(5, 9, []byte("ab")), immediate(2, true, 3), immediate(3, false, 4), immediate(4, false, 5), immediate(5, true, 6))
	s.completes(ok(2, work.WCWrite), ok(3, work.WCWrite), ok(5, work.WCSend))
}

// The request is not complete before the Immediate Data has left.
func TestWriteImmCutOff(t *testing.T) {
	s := open(t, withRFC7306)
	s.st.room = 1
	s.posts(work.SendWR{ID: 1, Op: work.WRWriteImm, Flags: work.Signaled, Inline: []byte("a"), Imm: 3}, work.SendWR{ID: 2, Op: work.WRSend})
	s.sends(write(0, 0, []byte("a")))
	s.completes()
	s.st.room = -1
	s.turn()
	s.sends(immediate(1, false, 3), send(2, nil))
	s.completes(ok(1, work.WCWrite))
	s.st.room = 1
	s.posts(work.SendWR{ID: 3, Op: work.WRWriteImm, Inline: []byte("a")})
	s.gets(terminateFPDU(OpStream))
	s.completes(flushed(3, work.WCWrite))
}

// Immediate Data takes a receive in the order of the Sends. The memory of the receive does
// not change.
func TestImmediateReceived(t *testing.T) { // RFC 7306 §6.1, §6.4
	s := open(t, withRFC7306)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}}, work.RecvWR{ID: 2}, work.RecvWR{ID: 3, SGL: []work.SGE{s.at(8, 2)}}, work.RecvWR{ID: 4})
	s.gets(immediate(1, false, 0x0011223344556677), immediate(2, true, 1<<64-1), send(3, []byte("ab")), immediate(4, false, 0))
	s.completes(withImm(1, 0x0011223344556677, false), withImm(2, 1<<64-1, true), received(3, 2), withImm(4, 0, false))
	s.untouched(s.mem, 8, []byte("ab"))
	s.is(RTS)
	s.counts(Stats{FPDUsIn: 4, SendsIn: 1, SendOctetsIn: 2, ImmediatesIn: 3})
}

// Malformed Immediate Data, and Immediate Data without a receive.
func TestImmediateRefused(t *testing.T) { // RFC 7306 §6.3, RFC 5041 §7
	imm := func(last bool, msn uint32, payload ...byte) []byte {
		return untagged(wire.OpImmediate, last, 0, 0, msn, 0, payload)
	}
	for name, c := range map[string]struct {
		receives int
		before   []byte
		fpdu     []byte
		code     Code
	}{
		"too short":          {1, nil, imm(true, 1, 1, 2, 3, 4, 5, 6, 7), MarkerError},
		"too long":           {1, nil, imm(true, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9), ddpCode(ddp.TooLong)},
		"not one segment":    {1, nil, imm(false, 1, 1, 2, 3, 4, 5, 6, 7, 8), ddpCode(ddp.TooLong)},
		"no receive":         {0, nil, immediate(1, false, 1), ddpCode(ddp.NoBuffer)},
		"MSN":                {1, nil, immediate(2, false, 1), ddpCode(ddp.BadMSN)},
		"within a Send":      {1, untagged(wire.OpSend, false, 0, 0, 1, 0, nil), immediate(1, false, 1), OpUnexpected},
		"on the Read queue":  {1, nil, untagged(wire.OpImmediate, true, 0, 1, 1, 0, make([]byte, 8)), ddpCode(ddp.BadQueue)},
		"with a tagged form": {1, nil, tagged(wire.OpImmediate, true, 1, 0, make([]byte, 8)), OpUnexpected},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, withRFC7306)
			for i := range c.receives {
				s.receives(work.RecvWR{ID: uint64(i)})
			}
			if c.before != nil {
				s.gets(c.before)
			}
			s.gets(c.fpdu)
			if c.receives == 1 {
				s.completes(flushed(0, work.WCRecv))
			}
			if c.code.Layer == LayerLLP {
				s.hasTerminated(c.code)
			} else {
				s.hasTerminated(c.code, c.fpdu)
			}
		})
	}
}

// Without RFC 7306 nothing of it leaves, even if the request is posted unchecked.
func TestNotAgreed(t *testing.T) { // RFC 7306 §1.1
	for _, op := range []work.WROp{work.WRWriteImm, work.WRSendImm, work.WRFetchAdd, work.WRMaskedFetchAdd, work.WRCompareSwap, work.WRMaskedCompareSwap, work.WRSwap} {
		s := open(t)
		wr := work.SendWR{ID: 1, Op: op, RKey: 5}
		if sqOpOf(op).answered {
			wr.SGL = []work.SGE{s.at(0, 8)}
		}
		if err := s.q.CheckSend(&wr); err != nil {
			t.Errorf("%v: %v", op, err)
		}
		if s.q.Refuses(&wr) != ErrNoRFC7306 || open(t, withRFC7306).q.Refuses(&wr) != nil {
			t.Errorf("%v: %v", op, s.q.Refuses(&wr))
		}
		s.posts(wr)
		s.sends(terminateFPDU(LocalCatastrophic))
		s.completes(failed(1, op.Completes(), work.LocalQPOpErr))
		if s.q.Cause().Err != ErrNoRFC7306 {
			t.Errorf("%v: %v", op, s.q.Cause().Err)
		}
	}
}
