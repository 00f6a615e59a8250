package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

func withShortImm(s *setup) {
	s.agree.RFC7306, s.agree.Extensions = true, s.agree.Extensions|wire.ExtRFC7306|wire.ExtImmediate
}

// sendImm returns a segment of a Send with Immediate.
func sendImm(last bool, imm, msn, mo uint32, payload []byte) []byte {
	return untagged(wire.OpSendImm, last, imm, 0, msn, mo, payload)
}

// A Send with Immediate has octets, and each segment has the Immediate Data. A Write with
// Immediate names its length.
func TestShortImmSent(t *testing.T) {
	s := open(t, withShortImm, withEMSS(100))
	s.posts(
		work.SendWR{ID: 1, Op: work.WRSendImm, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 90)}, Imm: 0xfffffffe},
		work.SendWR{ID: 2, Op: work.WRSendImm, Flags: work.Signaled | work.Solicited, Inline: []byte("ab"), Imm: 5},
		work.SendWR{ID: 3, Op: work.WRSendImm, Imm: 6},
		work.SendWR{ID: 4, Op: work.WRWriteImm, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 90)}, RKey: 5, RemoteAddr: 9, Imm: 7},
		work.SendWR{ID: 5, Op: work.WRWriteImm, Flags: work.Signaled | work.Solicited, RKey: 5, RemoteAddr: 9, Imm: 8})
	s.sends(sendImm(false, 0xfffffffe, 1, 0, pattern(0, 76)), sendImm(true, 0xfffffffe, 1, 76, pattern(76, 14)),
		untagged(wire.OpSendSEImm, true, 5, 0, 2, 0, []byte("ab")), sendImm(true, 6, 3, 0, nil),
		tagged(wire.OpWrite, false, 5, 9, pattern(0, 80)), tagged(wire.OpWrite, true, 5, 9+80, pattern(80, 10)),
		immediate(4, false, 90<<32|7), immediate(5, true, 8))
	s.completes(ok(1, work.WCSend), ok(2, work.WCSend), ok(4, work.WCWrite), ok(5, work.WCWrite))
	s.counts(Stats{FPDUsOut: 8, SendsOut: 3, SendOctetsOut: 92, WritesOut: 1, WriteOctetsOut: 90, ImmediatesOut: 5})
}

// The completion has the Immediate Data and the length.
func TestShortImmReceived(t *testing.T) {
	s := open(t, withShortImm)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 9)}}, work.RecvWR{ID: 2}, work.RecvWR{ID: 3}, work.RecvWR{ID: 4, SGL: []work.SGE{s.at(20, 9)}}, work.RecvWR{ID: 5})
	all := uint32(s.all)
	s.gets(sendImm(false, 1<<31, 1, 0, []byte("ab")), sendImm(true, 1<<31, 1, 2, []byte("cd")), untagged(wire.OpSendSEImm, true, 0, 0, 2, 0, nil),
		tagged(wire.OpWrite, false, all, regionStart+40, []byte("wri")), tagged(wire.OpWrite, true, all, regionStart+43, []byte("te")), immediate(3, true, 5<<32|9),
		immediate(4, false, 10))
	withImm := func(id uint64, op work.WCOp, imm uint64, n uint32, solicited bool) work.Completion {
		return work.Completion{ID: id, Op: op, WithImm: true, Imm: imm, Length: n, Solicited: solicited}
	}
	s.completes(withImm(1, work.WCRecv, 1<<31, 4, false), withImm(2, work.WCRecv, 0, 0, true),
		withImm(3, work.WCRecvImm, 9, 5, true), withImm(4, work.WCRecvImm, 10, 0, false))
	s.untouched(s.mem, 0, []byte("abcd"), 40, []byte("write"))
	s.gets(send(5, nil))
	s.completes(received(5, 0))
	s.is(RTS)
}

// A message that breaks the extension ends the connection. In particular the length must be
// that of the Write, because programs trust it.
func TestShortImmRefused(t *testing.T) {
	all := func(s *script) []byte { return write(uint32(s.all), regionStart, []byte("four")) }
	for name, c := range map[string]struct {
		before func(*script) []byte
		fpdu   []byte
		code   Code
	}{
		"too long a length":   {all, immediate(1, false, 5<<32), OpStream},
		"too short a length":  {all, immediate(1, false, 3<<32), OpStream},
		"no Write":            {nil, immediate(1, false, 1<<32), OpStream},
		"within a Write":      {func(s *script) []byte { return tagged(wire.OpWrite, false, uint32(s.all), regionStart, []byte("four")) }, immediate(1, false, 4<<32), OpStream},
		"other Immediate":     {func(s *script) []byte { return sendImm(false, 1, 1, 0, []byte("a")) }, sendImm(true, 2, 1, 1, nil), OpUnexpected},
		"on the Read queue":   {nil, untagged(wire.OpSendImm, true, 0, 1, 1, 0, nil), ddpCode(ddp.BadQueue)},
		"longer than receive": {nil, sendImm(true, 0, 1, 0, make([]byte, 9)), ddpCode(ddp.TooLong)},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, withShortImm)
			s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}})
			if c.before != nil {
				s.gets(c.before(s))
			}
			s.gets(c.fpdu)
			s.is(Terminate)
			if got := s.q.Cause(); got.Code != c.code || got.Remote {
				t.Errorf("cause %+v, want %v", got, c.code)
			}
		})
	}
}

// A request that does not fit the agreement is refused before it is posted, and fails if it
// is posted unchecked.
func TestShortImmChecked(t *testing.T) {
	for name, c := range map[string]struct {
		with change
		wr   work.SendWR
	}{
		"more than 32 bits of a Send":  {withShortImm, work.SendWR{ID: 1, Op: work.WRSendImm, Imm: 1 << 32}},
		"more than 32 bits of a Write": {withShortImm, work.SendWR{ID: 1, Op: work.WRWriteImm, Imm: 1 << 63}},
		"octets":                       {withRFC7306, work.SendWR{ID: 1, Op: work.WRSendImm, Inline: []byte("a")}},
		"only half of the agreement":   {func(s *setup) { s.agree.RFC7306, s.agree.Extensions = true, wire.ExtImmediate }, work.SendWR{ID: 1, Op: work.WRSendImm, Inline: []byte("a")}},
	} {
		s := open(t, c.with)
		if err := s.q.CheckSend(&c.wr); err != nil || s.q.Refuses(&c.wr) != ErrImmediate {
			t.Errorf("%s: %v, %v", name, err, s.q.Refuses(&c.wr))
		}
		s.posts(c.wr)
		s.sends(terminateFPDU(LocalCatastrophic))
		s.completes(failed(1, c.wr.Op.Completes(), work.LocalQPOpErr))
		if s.q.Cause().Err != ErrImmediate {
			t.Errorf("%s: %v", name, s.q.Cause().Err)
		}
	}
}

// A Send with Immediate and Immediate Data wait for receives as Sends do.
func TestShortImmHeld(t *testing.T) {
	s := open(t, withShortImm, withHold(HoldForever))
	s.gets(sendImm(true, 3, 1, 0, []byte("abc")), write(uint32(s.all), regionStart, []byte("four")), immediate(2, false, 4<<32|5))
	s.silent()
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(8, 8)}})
	s.completes(work.Completion{ID: 1, Op: work.WCRecv, WithImm: true, Imm: 3, Length: 3})
	s.receives(work.RecvWR{ID: 2})
	s.completes(work.Completion{ID: 2, Op: work.WCRecvImm, WithImm: true, Imm: 5, Length: 4})
	s.untouched(s.mem, 0, []byte("four"), 8, []byte("abc"))
}
