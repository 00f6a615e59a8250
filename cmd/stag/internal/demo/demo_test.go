package demo

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// The demonstration must fail if an operation does not do what it should. These tests make operations fail.

var small = Options{Octets: 3<<20 + 5, Message: 64 << 10, KernelPort: true}.fill()

func newStage(t *testing.T) *stage {
	t.Helper()
	s, err := small.stage(t.Context())
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, s.close()) })
	return s
}

// met returns two connected parties.
func met(t *testing.T, s *stage) (a, b *party) {
	t.Helper()
	a, b, err := small.parties(s)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, a.close()); rig.Must(t, b.close()) })
	rig.Must(t, small.meet(t.Context(), s, a, b))
	return a, b
}

// TestWrongOctetsFail: every operation fails if an octet is wrong.
func TestWrongOctetsFail(t *testing.T) {
	for _, op := range []rdma.WROp{rdma.WRWrite, rdma.WRRead, rdma.WRSend} {
		t.Run(op.String(), func(t *testing.T) {
			a, b := met(t, newStage(t))
			if op == rdma.WRRead {
				a, b = b, a
			}
			from, to := small.plan(op), small.plan(op)
			from.seed++
			src, dst := &source{party: a, plan: from}, &sink{party: b, plan: to}
			rig.Must(t, src.prepare())
			rig.Must(t, dst.prepare())
			rig.Says(t, small.watch(t.Context(), src, dst), nil, "octet 0 of the "+op.String(), "side "+b.side.String())
		})
	}
}

// TestCheck: check accepts only the message that is due, whole and in its place.
func TestCheck(t *testing.T) {
	s := newStage(t)
	_, b := met(t, s)
	p := small.plan(rdma.WRWrite)
	for name, c := range map[string]struct {
		n, holds uint64 // n is the announced message; holds is the message that is in the slot
		got      uint32
		spoil    int // the index of a wrong octet; below 0: none
		says     string
	}{
		"one octet":         {0, 0, 64 << 10, 65535, "octet 65535"},
		"another's octets":  {0, 1, 64 << 10, -1, "octet 0"},
		"of the lap before": {0, 64, 64 << 10, -1, "octet 0"},
		"too early":         {1, 1, 64 << 10, -1, "message 1 of the RDMA Write came instead of message 0"},
		"too short":         {0, 0, 64<<10 - 1, -1, "65535 octets, want 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &sink{party: b, plan: p}
			slot := b.data.Bytes()[p.offset(c.n):][:p.message]
			p.seed.Fill(slot, p.place(c.holds))
			if c.spoil >= 0 {
				slot[c.spoil] ^= 1
			}
			rig.Says(t, k.check(c.n, c.got), nil, c.says)
			if k.checked != 0 || k.reached.Load() != 0 {
				t.Errorf("%d messages and %d octets count as checked", k.checked, k.reached.Load())
			}
		})
	}
}

// TestDeadPeerFails: if a connection ends in the middle, both sides return an error with the reason.
func TestDeadPeerFails(t *testing.T) {
	a, b := met(t, newStage(t))
	p := small.plan(rdma.WRWrite)
	p.octets = 1 << 40
	src, dst := &source{party: a, plan: p}, &sink{party: b, plan: p}
	rig.Must(t, src.prepare())
	rig.Must(t, dst.prepare())
	go func() {
		for dst.reached.Load() < 1<<20 {
			time.Sleep(time.Millisecond)
		}
		a.ep.QP.Abort()
	}()
	rig.Says(t, small.watch(t.Context(), src, dst), nil, "side ", "QP ")
}

// TestInterruptedTransfer: both sides end when the context ends.
func TestInterruptedTransfer(t *testing.T) {
	a, b := met(t, newStage(t))
	p := small.plan(rdma.WRSend)
	p.octets = 1 << 40
	src, dst := &source{party: a, plan: p}, &sink{party: b, plan: p}
	rig.Must(t, src.prepare())
	rig.Must(t, dst.prepare())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for dst.reached.Load() < 1<<20 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	rig.Says(t, small.watch(ctx, src, dst), nil, context.Canceled.Error())
}

// TestUnexpectedAnswersFail: a refusal that does not come, a refusal with another code, and changed memory are
// failures.
func TestUnexpectedAnswersFail(t *testing.T) {
	s := newStage(t)
	for name, c := range map[string]struct {
		crime crime
		says  []string
	}{
		"allowed": {
			crime{access: anything, op: rdma.WRWrite, code: noRight},
			[]string{"deadline exceeded"},
		},
		"refused for something else": {
			crime{access: rdma.RemoteRead, op: rdma.WRWrite, code: outOfBounds},
			[]string{"side A", "expected a Terminate with DDP tagged buffer error: base or bounds violation (1/1/01)", "(0/1/02)"},
		},
		"memory changed": {
			crime{access: rdma.RemoteRead, op: rdma.WRWrite, code: noRight,
				spoil: func(v *victim) error { v.region.Bytes()[7]++; return nil }},
			[]string{"memory has changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if name == "allowed" { // the operation is allowed, so no Terminate arrives
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				ctx = short
			}
			_, err := c.crime.try(ctx, s)
			rig.Says(t, err, nil, c.says...)
		})
	}
}

// TestTerminate: terminate rejects every error that is not the expected Terminate.
func TestTerminate(t *testing.T) {
	c := &crime{code: noRight}
	due := &rdma.QPError{Cause: rdmap.Cause{Code: noRight, Remote: true}}
	if told, err := c.terminate(due, true); told != due || err != nil {
		t.Errorf("%v, %v", told, err)
	}
	for _, err := range []error{
		nil,
		rdma.ErrClosed,
		&rdma.QPError{Cause: rdmap.Cause{Err: rdma.ErrClosed}},
		&rdma.QPError{Cause: rdmap.Cause{Code: noRight}}, // an error that this side has found itself
		&rdma.QPError{Cause: rdmap.Cause{Code: outOfBounds, Remote: true}},
	} {
		if _, complaint := c.terminate(err, true); complaint == nil {
			t.Errorf("%v passes", err)
		}
	}
}

// TestHostClosesEverything: closing a host closes its regions and QPs and frees their memory.
func TestHostClosesEverything(t *testing.T) {
	s := newStage(t)
	a, b, err := small.parties(s)
	rig.Must(t, err)
	rig.Must(t, small.meet(t.Context(), s, a, b))
	rig.Must(t, a.close())
	rig.Must(t, b.close())
	for _, side := range []pair.Side{pair.A, pair.B} {
		at, err := s.adapters[side].Attributes()
		rig.Must(t, err)
		if at.Regions != 0 || at.QPs != 0 || at.HeapFree != at.HeapSize {
			t.Errorf("side %v has %d regions, %d QPs and %d of %d octets", side, at.Regions, at.QPs, at.HeapFree, at.HeapSize)
		}
	}
}

func TestTicket(t *testing.T) {
	want := ticket{addr: 1<<40 + 3, key: 0x12345678, octets: 4096}
	b := want.append(nil)
	got, err := parseTicket(b)
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, n := range []int{0, ticketLen - 1, ticketLen + 1} {
		_, err := parseTicket(make([]byte, n))
		rig.Says(t, err, nil, "private data")
	}
}

func TestPlan(t *testing.T) {
	p := small.plan(rdma.WRSend)
	if n := p.messages(); n != 49 || p.length(47) != 64<<10 || p.length(48) != 5 || p.slots != 64 {
		t.Errorf("%d messages, the last two of %d and %d octets, %d slots", n, p.length(47), p.length(48), p.slots)
	}
	seeds := map[any]bool{}
	for _, op := range []rdma.WROp{rdma.WRWrite, rdma.WRRead, rdma.WRSend} {
		seeds[small.plan(op).seed] = true
	}
	if len(seeds) != 3 {
		t.Error("operations share a pattern")
	}
}

// TestCounter: the demonstration fails if an addition is lost or refused, and every end has
// stopped when it returns.
func TestCounter(t *testing.T) {
	s := newStage(t)
	c, err := small.counter(t.Context(), s)
	rig.Must(t, err)
	if want := (Counter{Peers: 2, Each: additions, Value: 3 * additions}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	home, err := newHost(s.adapters[pair.B], 1, wordLen, rdma.LocalWrite) // without the right
	rig.Must(t, err)
	defer func() { rig.Must(t, home.close()) }()
	p, err := newPeer(t.Context(), s, home)
	rig.Must(t, err)
	ended := false
	err = together(t.Context(), []func(context.Context) error{
		func(ctx context.Context) error { return p.add(ctx, home.ep.MR.RKey()) },
		func(ctx context.Context) error { <-ctx.Done(); ended = true; return nil },
	})
	rig.Says(t, err, nil, "access rights violation")
	if !ended || home.ep.MR.Uint64(0).Load() != 0 {
		t.Errorf("ended %v, word %d", ended, home.ep.MR.Uint64(0).Load())
	}
}

// TestLend: the demonstration fails if the bind is refused, or if an octet outside of the
// window has changed.
func TestLend(t *testing.T) {
	s := newStage(t)
	w, err := small.lend(t.Context(), s)
	rig.Must(t, err)
	if w.Region != crimeOctets || w.Offset != loanOffset || w.Octets != loanOctets || w.Code != "1/1/00" {
		t.Errorf("%+v", w)
	}
	l := newTestLoan(t, s, rdma.LocalWrite) // without the right to bind windows
	rig.Says(t, l.bind(t.Context()), nil, "does not give that right")
	l = newTestLoan(t, s, rdma.LocalWrite|rdma.MWBind)
	rig.Must(t, l.bind(t.Context()))
	l.b.region.Bytes()[loanOffset-1]++
	rig.Says(t, l.use(t.Context()), nil, "not those that side A wrote")
}

func newTestLoan(t *testing.T, s *stage, access rdma.Access) *loan {
	t.Helper()
	l, err := newLoan(t.Context(), s, access)
	rig.Must(t, err)
	t.Cleanup(func() {
		rig.Must(t, l.b.close())
		rig.Must(t, l.a.close())
	})
	return l
}
