package flow

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/signal"
)

// TestTargetAborts: the response of a task management function comes after the end of
// what it aborts, and no response of that comes at all (RFC 7143 §11.5, §11.6).
func TestTargetAborts(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		manage := func(f pdu.Function, rtt pdu.Tag) []byte {
			return s.pdu(pdu.OpTask, 77, func(h *pdu.Header) {
				h.SetImmediate(true)
				h.SetFunction(f)
				h.SetReferencedTaskTag(rtt)
			}, nil)
		}
		h := s.one(s.hears(s.write(4, 8, 2, nil)), pdu.OpR2T).h
		for rtt, want := range map[pdu.Tag]uint8{4: pdu.FunctionComplete, 5: pdu.TaskDoesNotExist} {
			if p := s.one(s.hears(manage(pdu.AbortTask, rtt)), pdu.OpTaskResponse); p.h.Response() != want {
				t.Errorf("ABORT TASK %d: %d, want %d", rtt, p.h.Response(), want)
			}
		}
		if got := s.hears(s.dataOut(&h, 0, 0, true, pattern(1024, 1))); len(got) != 0 || !bytes.Equal(s.blocks(8, 2), make([]byte, 1024)) {
			t.Errorf("Data-Out for an aborted command: %v", opcodes(got))
		}
		s.lazy = true
		if got := s.hears(s.command(5, []byte{0x12, 0, 0, 0, 255, 0}, pdu.Final|pdu.Read, 255, nil), manage(pdu.LogicalUnitReset, 0)); len(got) != 0 {
			t.Fatalf("sent %v while a task is with a worker", opcodes(got))
		}
		s.lazy = false
		s.work()
		if p := s.one(s.hears(), pdu.OpTaskResponse); p.h.Response() != pdu.FunctionComplete || s.resets != 1 {
			t.Errorf("LOGICAL UNIT RESET: %x, %d resets", p.h, s.resets)
		}
		s.status(s.hears(s.command(1, make([]byte, 6), pdu.Final, 0, nil)), unit.CheckCondition, scsi.DeviceReset)
		h = s.one(s.hears(s.write(4, 8, 2, nil)), pdu.OpR2T).h
		s.tgt.Purge(1<<48, false, nil)
		if got := s.hears(); len(got) != 0 {
			t.Error(opcodes(got))
		}
	})
}

// TestTargetOrder: an ordered command waits for older ones, and younger ones for it.
func TestTargetOrder(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		ordered := func(b []byte) []byte { (*pdu.Header)(b).SetAttribute(pdu.Ordered); return b }
		h := s.one(s.hears(s.write(1, 0, 1, nil)), pdu.OpR2T).h
		if got := s.hears(ordered(s.write(2, 0, 1, pattern(512, 2))), s.command(3, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil)); len(got) != 0 {
			t.Fatalf("sent %v before the oldest command has ended", opcodes(got))
		}
		got := s.hears(s.dataOut(&h, 0, 0, true, pattern(512, 1)))
		if fmt.Sprint(opcodes(got)) != "[SCSI Response SCSI Response SCSI Data-In]" || !bytes.Equal(got[2].data, pattern(512, 2)) {
			t.Fatalf("sent %v", opcodes(got))
		}
	})
}

// TestTargetPurgeSparesLaterCommands: a command that arrives after Purge is executed, also if
// no step ran in between. Its initiator may already know of the reset, and no response would
// come.
func TestTargetPurgeSparesLaterCommands(t *testing.T) {
	onBoth(t, nil, func(s *server) {
		s.hears(s.write(1, 0, 20, nil))
		s.tgt.Purge(1<<48, false, nil)
		got := s.one(s.hears(s.command(2, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil)), pdu.OpDataIn)
		if got.h.InitiatorTaskTag() != 2 {
			t.Errorf("%x", got.h)
		}
	})
}

// TestTargetPurgeEnds: the request of another session goes on when the aborted commands have
// ended: one whose data is arriving, one that a worker has, and those of a connection that is
// lost.
func TestTargetPurgeEnds(t *testing.T) {
	s := serve(t, usualTarget(), false)
	ended := 0
	done := func() *signal.Signal { return &signal.Signal{Fire: func() { ended++ }} }
	hear := func(p ...[]byte) {
		s.hears(p...)
		s.tgt.cfg.Board.Deliver()
	}
	h := s.one(s.hears(s.write(1, 8, 2, nil)), pdu.OpR2T).h
	data := s.dataOut(&h, 0, 0, true, pattern(1024, 1))
	hear(data[:500])
	s.tgt.Purge(1<<48, false, done())
	if hear(); ended != 0 {
		t.Fatal("ended in the middle of a Data-Out")
	}
	if hear(data[500:]); ended != 1 {
		t.Fatalf("ended %d times behind the Data-Out", ended)
	}
	s.lazy = true
	hear(s.command(2, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil))
	s.tgt.Purge(1<<48, false, done())
	if hear(); ended != 1 {
		t.Fatal("ended while a worker has a command")
	}
	s.work()
	if hear(); ended != 2 {
		t.Fatalf("ended %d times", ended)
	}
	hear(s.command(3, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil))
	s.tgt.Purge(1<<48, false, done())
	s.ulp.Fault(1, errors.New("cable"))
	s.work()
	s.tgt.Release()
	s.tgt.Purge(1<<48, false, done())
	if s.tgt.cfg.Board.Deliver(); ended != 4 {
		t.Fatalf("ended %d times after the end of the connection", ended)
	}
}

// TestTargetEnds: at the end of the connection the memory comes back, also that of jobs
// that are with a worker.
func TestTargetEnds(t *testing.T) {
	s := serve(t, usualTarget(), false)
	s.hears(s.write(1, 0, 2, pattern(512, 1)))
	s.lazy = true
	s.hears(s.command(3, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil))
	cause := errors.New("cable")
	s.ulp.Fault(1, cause)
	s.tgt.cfg.Board.Deliver()
	if s.ended != 0 {
		t.Fatal("ended while a worker has a job")
	}
	s.work()
	if orderly, _, err := s.tgt.Over(); s.ended != 1 || orderly || err != cause {
		t.Fatalf("ended %d times, orderly %v, %v", s.ended, orderly, err)
	}
	s.tgt.Release()
	if s.pool.Free() != s.pool.Size() {
		t.Errorf("%d octets are lost", s.pool.Size()-s.pool.Free())
	}
}
