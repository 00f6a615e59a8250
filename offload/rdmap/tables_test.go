package rdmap

import (
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Each opcode of RFC 5040 has a function that receives it, and each opcode of RFC 7306 and of
// ExtImmediate has one if both ends speak it. Any other opcode ends the connection as unexpected, whatever
// its header and queue.
func TestEveryOpcodeHasAPlace(t *testing.T) {
	for last, with := range map[wire.Opcode]change{
		wire.OpTerminate: func(*setup) {}, wire.OpAtomicResponse: withRFC7306, wire.OpSendSEImm: withShortImm,
	} {
		for o := wire.Opcode(0); o < 16; o++ {
			known := o <= last
			if got := open(t, with).q.receiver(o) != nil; got != known {
				t.Errorf("%v is received: %v, want %v", o, got, known)
			}
			if known {
				continue
			}
			for _, f := range [][]byte{
				tagged(o, true, 1, 0, nil), untagged(o, true, 0, wire.QueueSend, 1, 0, nil),
				untagged(o, true, 0, wire.QueueReadRequest, 1, 0, nil), untagged(o, true, 0, wire.QueueTerminate, 1, 0, nil),
			} {
				s := open(t, with)
				s.receives(work.RecvWR{ID: 1})
				s.gets(f)
				s.is(Terminate)
				if c := s.q.Cause(); c.Code != OpUnexpected || c.Remote {
					t.Errorf("%v: %v", o, c.Code)
				}
				s.completes(flushed(1, work.WCRecv))
			}
		}
	}
}

// Each operation with a name has a complete row. Any other operation is refused by the
// check, and also if it is posted unchecked: it is never treated as a Send.
func TestEveryRequestHasAPlace(t *testing.T) {
	for o := range 256 {
		op := work.WROp(o)
		row := sqOpOf(op)
		if got := row.known(); got != op.Known() {
			t.Errorf("%v has a row: %v, has a name: %v", op, got, op.Known())
		}
		if !op.Known() {
			s := open(t)
			if s.q.CheckSend(&work.SendWR{Op: op}) == nil {
				t.Errorf("%v passes the check", op)
			}
			s.posts(work.SendWR{ID: 1, Op: op, Inline: []byte("abc")}, work.SendWR{ID: 2, Op: work.WRSend})
			s.sends(terminateFPDU(LocalCatastrophic))
			s.completes(failed(1, work.NoOp, work.LocalQPOpErr), flushed(2, work.WCSend))
			if s.q.Cause().Err != ErrBadRequest {
				t.Errorf("%v: %v", op, s.q.Cause().Err)
			}
			continue
		}
		if !row.sends() {
			if op.Completes() == work.NoOp || row.begin != nil || row.table != nil && row.wait != nil || row.flags != tableFlags || row.inline || row.answered {
				t.Errorf("%v: %+v", op, *row)
			}
			continue
		}
		if op.Completes() == work.NoOp || row.right == 0 || row.flags&work.Signaled == 0 || wire.InfoOf(row.opcode).Solicited {
			t.Errorf("%v: %+v", op, *row)
		}
		if asks := row.flags&work.Solicited != 0; asks != (row.solicited != 0) || asks && !wire.InfoOf(row.solicited).Solicited {
			t.Errorf("%v with Solicited is %v", op, row.solicited)
		}
		if reads := row.right == tpt.LocalWrite; reads != row.answered || reads != wire.InfoOf(row.opcode).Answered {
			t.Errorf("%v: its memory is written %v, it is answered %v", op, reads, row.answered)
		}
	}
}

// A request that the check refuses is refused as well if it is posted unchecked, and a
// request that passes the check is not.
func TestChecksAgree(t *testing.T) {
	c := &Config{Registers: true, MaxSGE: 3, MaxInline: 8}
	ops := []work.WROp{work.WRSwap}
	for o := range work.WROp(14) {
		ops = append(ops, o)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var refused, passed int
	for range 100000 {
		wr := work.SendWR{Op: ops[r.IntN(len(ops))], Flags: work.SendFlags(r.IntN(9))}
		if r.IntN(2) == 0 {
			wr.Inline = make([]byte, r.IntN(10))
		} else {
			wr.SGL = make([]work.SGE, r.IntN(5))
			for i := range wr.SGL {
				if wr.SGL[i].Length = r.Uint32() >> r.IntN(8); r.IntN(3) == 0 {
					wr.SGL[i].Length = wire.AtomicLen
				}
			}
		}
		w := work.SendWQE{
			Op: wr.Op, Flags: wr.Flags, Inline: len(wr.Inline) != 0, SGEs: uint8(len(wr.SGL)),
			Length: uint32(max(work.Length(wr.SGL), uint64(len(wr.Inline)))),
		}
		err, ok := c.checkSend(&wr), c.sound(sqOpOf(wr.Op), &w)
		if (err == nil) != ok && work.Length(wr.SGL) <= MaxMessage {
			t.Fatalf("%+v: %v, %v", wr, err, ok)
		}
		if err != nil {
			refused++
		} else {
			passed++
		}
	}
	if refused < 1000 || passed < 1000 {
		t.Errorf("%d refused, %d passed", refused, passed)
	}
}
