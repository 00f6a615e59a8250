package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// log is a mover and an owner that writes down what happens.
type log struct{ lines []string }

func (l *log) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) Connect()                    { l.add("connect") }
func (l *log) Drop()                       { l.add("drop") }
func (l *log) Send(c *Command, sn seq.Num) { l.add("send %d sn %d", c.ID, sn) }
func (l *log) Revoke(c *Command)           { l.add("revoke %d", c.ID) }
func (l *log) Manage(f pdu.Function, lun uint64, of *Command, ref, sn seq.Num) {
	if of != nil {
		l.add("abort %d ref %d sn %d", of.ID, ref, sn)
		return
	}
	l.add("function %d lun %d sn %d", f, lun, sn)
}
func (l *log) Ping(sn seq.Num)                    { l.add("ping sn %d", sn) }
func (l *log) Fill(sn seq.Num)                    { l.add("fill sn %d", sn) }
func (l *log) Acknowledge(lun uint64, sn seq.Num) { l.add("acknowledge lun %d sn %d", lun, sn) }
func (l *log) Logout(sn seq.Num)                  { l.add("logout sn %d", sn) }

func (l *log) Completed(c *Command, o Outcome) { l.add("%d %v", c.ID, o) }
func (l *log) Managed(cookie uint64, response uint8, lost bool) {
	l.add("managed %d response %d lost %v", cookie, response, lost)
}
func (l *log) Changed(s State, _ error) { l.add("%v", s) }
func (l *log) Notice(h *pdu.Header)     { l.add("notice %d", h.Event()) }
func (l *log) Unprotected(lun uint64, response uint8) {
	l.add("unprotected lun %d response %d", lun, response)
}

const second = clock.Instant(time.Second)

// script drives a session.
type script struct {
	*testing.T
	log
	s   *Session
	now clock.Instant
}

func newScript(t *testing.T) *script {
	x := &script{T: t, now: 1000 * second}
	x.s = New(Config{}, &x.log, &x.log)
	return x
}

// want compares what has happened since the last want.
func (x *script) want(lines ...string) {
	x.Helper()
	if !slices.Equal(x.lines, lines) {
		x.Fatalf("got  %q\nwant %q", x.lines, lines)
	}
	x.lines = nil
}

// up opens the session with a window of commands from number 1 on.
func (x *script) up(window uint32) *script {
	x.Helper()
	x.s.Open(x.now)
	x.connected(window)
	x.want("login", "connect", "up")
	return x
}

func (x *script) connected(window uint32) {
	x.s.Connected(x.now, login.Params{CmdSN: 1, MaxCmdSN: seq.Num(window), CID: 3, Time2Wait: 2})
}

func (x *script) at(after time.Duration) {
	x.now = x.now.Add(after)
	x.s.Tick(x.now)
}

func (x *script) submit(c *Command) *Command {
	x.Helper()
	if err := x.s.Submit(c); err != nil {
		x.Fatal(err)
	}
	return c
}

// command makes a command by its operation code.
func command(id, lun uint64, op byte) *Command {
	return &Command{ID: id, LUN: lun, CDB: scsi.CDB{op, 0, 0, 0, 0, byte(id)}}
}

const (
	read    = 0x28
	write   = 0x2a
	compare = 0x89
	sync    = 0x35
	verify  = 0x2f
	odd     = 0xf0 // no such command
)

// TestLifeCycle: the whole function.
func TestLifeCycle(t *testing.T) {
	all := []State{Down, Login, Up, Held, Lost}
	want := map[State]map[event]State{
		Down:  {evOpen: Login},
		Login: {evUp: Up, evBroken: Held, evGivenUp: Lost, evClosed: Down},
		Up:    {evBroken: Held, evClosed: Down},
		Held:  {evRetry: Login, evGivenUp: Lost, evClosed: Down},
		Lost:  {evClosed: Down},
	}
	for _, s := range all {
		for e := range events {
			to, permitted := s.next(e)
			target, listed := want[s][e]
			if permitted != listed || listed && to != target || !listed && to != s {
				t.Errorf("%v, event %d: %v, %v", s, e, to, permitted)
			}
		}
	}
}

func TestWindow(t *testing.T) {
	w := NewWindow(0xfffffffe, 0xffffffff)
	if w.Open() != 2 || w.Take() != 0xfffffffe || w.Open() != 1 || w.Take() != 0xffffffff || w.Open() != 0 || w.Next() != 0 {
		t.Errorf("%+v", w)
	}
	for _, c := range []struct {
		exp, max seq.Num
		open     uint32
	}{
		{0xffffffff, 0, 1},
		{0, 0xfffffffe, 1}, // MaxCmdSN is less than ExpCmdSN - 1: neither is valid
		{0, 0xffffffff, 1}, // older than the last
		{0, 5, 6},
		{0xffffffff, 4, 6},
		{20, 10, 6}, // neither is valid, though both are newer
	} {
		if w.Update(c.exp, c.max); w.Open() != c.open {
			t.Errorf("after %d, %d: %d open, want %d", c.exp, c.max, w.Open(), c.open)
		}
	}
	if !w.Received(0xffffffff) || w.Received(0) {
		t.Error("ExpCmdSN is 0")
	}
	closed := NewWindow(7, 6)
	if closed.Open() != 0 {
		t.Errorf("a closed window has room for %d", closed.Open())
	}
}

// TestWindowHoldsCommands: the target says when the next commands may go.
func TestWindowHoldsCommands(t *testing.T) {
	x := newScript(t).up(2)
	var all []*Command
	for id := range uint64(4) {
		all = append(all, x.submit(command(id, 0, write)))
	}
	x.want("send 0 sn 1", "send 1 sn 2")
	x.s.Finished(all[1])
	x.s.Heard(x.now, 3, 3)
	x.want("1 done", "send 2 sn 3")
	x.s.Heard(x.now, 4, 10)
	x.want("send 3 sn 4")
	if err := x.s.Submit(all[3]); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	if x.s.Submit(all[1]) != nil || x.s.Len() != 4 {
		t.Error("a command that has ended cannot be used again")
	}
}

// TestFirstLogin: a session whose first login fails is lost.
func TestFirstLogin(t *testing.T) {
	x := newScript(t)
	x.s.Open(x.now)
	c := x.submit(command(1, 0, read))
	x.s.Failed(x.now, errors.New("refused"))
	x.want("login", "connect", "1 session lost", "lost")
	if err := x.s.Submit(c); !errors.Is(err, ErrEnded) || x.s.Deadline() != clock.Never {
		t.Error(err)
	}
}

// TestKeepAlive: a silent target is pinged, and given up.
func TestKeepAlive(t *testing.T) {
	x := newScript(t).up(100)
	x.at(5*time.Second - 1)
	x.want()
	x.at(1)
	x.want("ping sn 1")
	x.at(4 * time.Second)
	x.s.Heard(x.now, 1, 100) // any PDU is a sign of life
	x.at(time.Second)
	x.want()
	if d := x.s.Deadline(); d != x.now.Add(4*time.Second) {
		t.Fatalf("next ping in %v", d.Sub(x.now))
	}
	x.at(4 * time.Second)
	x.want("ping sn 1")
	x.at(5*time.Second - 1)
	x.want()
	x.at(1)
	x.want("drop", "held")
	if _, cause := x.s.State(); !errors.Is(cause, ErrSilent) {
		t.Error(cause)
	}
}

// TestCancel: the command ends at once, and an abort follows if the target has it.
func TestCancel(t *testing.T) {
	x := newScript(t).up(2)
	a, b, c := x.submit(command(1, 0, write)), x.submit(command(2, 0, write)), x.submit(command(3, 0, write))
	x.lines = nil
	x.s.Cancel(x.now, c)
	x.want("3 canceled")
	x.s.Cancel(x.now, a)
	x.s.Cancel(x.now, b)
	x.want("revoke 1", "1 canceled", "abort 1 ref 1 sn 3", "revoke 2", "2 canceled")
	if x.s.Cancel(x.now, a) || !x.s.Live(a) || x.s.Live(c) {
		t.Error("canceled twice")
	}
	x.s.Finished(b) // its status was on the way
	x.want()
	x.s.Managed(x.now, pdu.TaskDoesNotExist)
	x.want()
	if x.s.Live(a) || x.s.Live(b) || x.s.Len() != 0 {
		t.Error("the target has nothing any more")
	}
	// A refused abort leaves the command to the target.
	x.s.Heard(x.now, 3, 9)
	x.submit(a)
	x.s.Cancel(x.now, a)
	x.s.Managed(x.now, pdu.FunctionRejected)
	if !x.s.Live(a) {
		t.Error("the target still has the command")
	}
	x.lines = nil
	x.s.Broken(x.now, nil)
	x.want("drop", "held")
	if x.s.Live(a) || !x.s.dirty.has(0) {
		t.Error("the loss ends the command and makes the unit suspect")
	}
}

// TestManage: functions for whole units end the commands that were sent before.
func TestManage(t *testing.T) {
	x := newScript(t).up(100)
	a, b := x.submit(command(1, 0, write)), x.submit(command(2, 1, write))
	x.lines = nil
	for _, f := range []pdu.Function{pdu.QueryTaskSet, pdu.LogicalUnitReset, pdu.AbortTaskSet} {
		if err := x.s.Manage(x.now, f, 0, uint64(f)); err != nil {
			t.Fatal(err)
		}
	}
	x.want("function 10 lun 0 sn 3")
	x.s.Managed(x.now, pdu.FunctionComplete) // a query ends nothing
	x.want("managed 10 response 0 lost false", "function 5 lun 0 sn 3")
	later := x.submit(command(3, 0, read))
	x.s.Managed(x.now, pdu.FunctionComplete)
	x.want("send 3 sn 3", "revoke 1", "1 aborted", "managed 5 response 0 lost false", "function 2 lun 0 sn 4")
	if x.s.Live(a) || !x.s.Live(b) || !x.s.Live(later) {
		t.Error("the wrong commands ended")
	}
	x.at(5 * time.Second)
	x.s.Heard(x.now, 1, 100)
	x.at(5 * time.Second)
	x.s.Heard(x.now, 1, 100)
	x.lines = nil
	x.at(5 * time.Second) // 15 s without an answer
	x.want("drop", "managed 2 response 0 lost true", "held")
	if err := x.s.Manage(x.now, pdu.LogicalUnitReset, 0, 0); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	x = newScript(t).up(100)
	x.submit(command(1, 0, write))
	x.submit(command(2, 1, write))
	x.s.Manage(x.now, pdu.TargetWarmReset, 0, 1)
	x.lines = nil
	x.s.Managed(x.now, pdu.FunctionComplete)
	x.want("revoke 1", "1 aborted", "revoke 2", "2 aborted", "managed 1 response 0 lost false")
}

// TestRejected: the number of a rejected command must not be a hole.
func TestRejected(t *testing.T) {
	x := newScript(t).up(100)
	a, b := x.submit(command(1, 0, write)), x.submit(command(2, 0, odd))
	x.s.Heard(x.now, 2, 100)
	x.lines = nil
	x.s.Rejected(b)
	x.want("fill sn 2", "2 rejected")
	x.s.Rejected(a) // the target has counted it all the same
	x.want("1 rejected")
	x.s.Rejected(a)
	x.s.Finished(a)
	x.want()
}

// TestAsync: each event of RFC 7143 §11.9.1.
func TestAsync(t *testing.T) {
	message := func(e pdu.Event, p1, p2, p3 uint16) *pdu.Header {
		var h pdu.Header
		h.Reset(pdu.OpAsync)
		h.SetEvent(e)
		h.SetLUN(7)
		h.SetParameters(p1, p2, p3)
		return &h
	}
	for _, c := range []struct {
		h    *pdu.Header
		want []string
		wait time.Duration
	}{
		{message(pdu.EventSCSI, 0, 0, 0), []string{"notice 0"}, 0},
		{message(250, 0, 0, 0), []string{"notice 250"}, 0},
		{message(pdu.EventLogout, 0, 0, 10), []string{"logout sn 2"}, 0},
		{message(pdu.EventNegotiate, 0, 0, 10), []string{"logout sn 2"}, 0},
		{message(pdu.EventDropConnection, 3, 4, 0), []string{"drop", "held"}, 4 * time.Second},
		{message(pdu.EventDropConnection, 8, 4, 0), nil, 0}, // another connection
		{message(pdu.EventDropSession, 0, 9, 0), []string{"drop", "held"}, 9 * time.Second},
		{message(pdu.EventTasksEnded, 0, 0, 0), []string{"acknowledge lun 7 sn 2"}, 0},
	} {
		x := newScript(t).up(100)
		x.submit(command(1, 0, read))
		x.lines = nil
		x.s.Async(x.now, c.h)
		x.want(c.want...)
		if c.wait != 0 && x.s.Deadline() != x.now.Add(c.wait) {
			t.Errorf("event %d: next login in %v", c.h.Event(), x.s.Deadline().Sub(x.now))
		}
	}
}

// TestDropOne: the target says that it drops one of several connections. At error recovery
// level 0 the session logs in again with all of them.
func TestDropOne(t *testing.T) {
	var h pdu.Header
	h.SetEvent(pdu.EventDropConnection)
	for cid, want := range map[uint16]string{0: "held", 3: "held", 4: ""} {
		x := newScript(t)
		x.s.config.Connections = 4
		x.up(100)
		x.lines = nil
		h.SetParameters(cid, 0, 0)
		x.s.Async(x.now, &h)
		if want == "" {
			x.want()
			continue
		}
		x.want("drop", want)
	}
}

// TestRenew: the target wants a logout. Nothing is sent behind it, and a new login
// follows.
func TestRenew(t *testing.T) {
	var h pdu.Header
	h.SetEvent(pdu.EventLogout)
	h.SetParameters(0, 0, 10)
	x := newScript(t).up(100)
	x.submit(command(1, 0, read))
	x.s.Async(x.now, &h)
	x.s.Async(x.now, &h) // once is enough
	x.submit(command(2, 0, read))
	x.want("send 1 sn 1", "logout sn 2")
	x.s.LoggedOut(x.now, 3*time.Second)
	x.want("drop", "held")
	x.at(3 * time.Second)
	x.connected(100)
	x.want("login", "connect", "up", "send 1 sn 1", "send 2 sn 2")
	// Without an answer, the connection is given up.
	x.s.Async(x.now, &h)
	x.lines = nil
	x.at(10 * time.Second)
	x.want("drop", "held")
}

// TestClose: in each state.
func TestClose(t *testing.T) {
	x := newScript(t).up(100)
	x.submit(command(1, 0, write))
	x.lines = nil
	x.s.Close(x.now)
	x.want("logout sn 2")
	if err := x.s.Submit(command(2, 0, read)); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	x.s.LoggedOut(x.now, 0)
	x.want("drop", "1 session lost", "down")
	x.s.Close(x.now)
	x.want()
	x.s.Open(x.now) // a session may be opened again
	x.connected(5)
	x.lines = nil
	x.s.Close(x.now)
	x.s.Close(x.now)
	x.s.Broken(x.now, nil) // the target closes instead of an answer
	x.want("logout sn 1", "drop", "down")

	x.s.Open(x.now)
	x.submit(command(3, 0, read))
	x.lines = nil
	x.s.Close(x.now)
	x.want("drop", "3 session lost", "down")

	x.up(5).s.Broken(x.now, nil)
	x.submit(command(4, 0, read))
	x.lines = nil
	x.s.Close(x.now)
	x.want("4 session lost", "down")
	if x.s.Deadline() != clock.Never {
		t.Error("a session that is down has a deadline")
	}
}

// TestClasses: what may be executed twice, and what may change a unit late.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		name            string
		cdb             scsi.CDB
		repeat, changes bool
	}{
		{"READ", scsi.CDB{read}, true, false},
		{"WRITE", scsi.CDB{write}, true, true},
		{"WRITE SAME", scsi.CDB{0x93}, true, true},
		{"UNMAP", scsi.CDB{0x42}, true, true},
		{"SYNCHRONIZE CACHE", scsi.CDB{sync}, true, false},
		{"VERIFY", scsi.CDB{verify}, true, false},
		{"INQUIRY", scsi.CDB{0x12}, true, false},
		{"COMPARE AND WRITE", scsi.CDB{compare}, false, true},
		{"ORWRITE", scsi.CDB{0x8b}, false, true},
		{"PERSISTENT RESERVE OUT", scsi.CDB{0x5f, 1}, false, true},
		{"PERSISTENT RESERVE IN", scsi.CDB{0x5e, 0}, true, false},
		{"RESERVE", scsi.CDB{0x16}, false, true},
		{"EXTENDED COPY", scsi.CDB{0x83}, false, true},
		{"START STOP UNIT", scsi.CDB{0x1b}, false, true},
		{"unknown", scsi.CDB{odd}, false, true},
	} {
		if Repeatable(&c.cdb) != c.repeat || Changes(&c.cdb) != c.changes {
			t.Errorf("%s: repeatable %v, changes %v", c.name, Repeatable(&c.cdb), Changes(&c.cdb))
		}
	}
}

// TestNoAllocation: commands that move without a loss cost no memory.
func TestNoAllocation(t *testing.T) {
	var q quiet
	s := New(Config{}, q, q)
	s.Open(1)
	s.Connected(1, login.Params{CmdSN: 1, MaxCmdSN: 1 << 30})
	c := command(1, 0, write)
	if n := testing.AllocsPerRun(1000, func() {
		if s.Submit(c) != nil {
			t.Fatal("refused")
		}
		s.Heard(2, s.window.Next(), s.window.Next().Add(100))
		s.Finished(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// quiet is a mover and an owner that does nothing.
type quiet struct{}

func (quiet) Connect()                                                {}
func (quiet) Drop()                                                   {}
func (quiet) Send(*Command, seq.Num)                                  {}
func (quiet) Revoke(*Command)                                         {}
func (quiet) Manage(pdu.Function, uint64, *Command, seq.Num, seq.Num) {}
func (quiet) Ping(seq.Num)                                            {}
func (quiet) Fill(seq.Num)                                            {}
func (quiet) Acknowledge(uint64, seq.Num)                             {}
func (quiet) Logout(seq.Num)                                          {}
func (quiet) Completed(*Command, Outcome)                             {}
func (quiet) Managed(uint64, uint8, bool)                             {}
func (quiet) Changed(State, error)                                    {}
func (quiet) Notice(*pdu.Header)                                      {}
func (quiet) Unprotected(uint64, uint8)                               {}
