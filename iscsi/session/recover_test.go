package session

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestReplay: commands without status go again in their old order, in front of those that
// were not sent, behind a reset of each unit that may have old commands.
func TestReplay(t *testing.T) {
	x := newScript(t).up(6)
	for id, op := range []byte{write, read, compare, sync, odd, write} {
		x.submit(command(uint64(id), uint64(id%2), op))
	}
	x.submit(command(6, 5, read))
	x.submit(command(7, 0, write))
	x.lines = nil
	x.s.Broken(x.now, errors.New("end of the stream"))
	x.want("drop", "2 uncertain", "4 uncertain", "held")
	if d := x.s.Deadline(); d != x.now.Add(2*time.Second) { // Time2Wait
		t.Fatalf("deadline after %v", d.Sub(x.now))
	}
	x.at(2*time.Second - 1)
	x.want()
	x.at(1)
	x.want("login", "connect")
	x.submit(command(8, 1, read))
	x.connected(100)
	x.want("up", "function 5 lun 0 sn 1", "send 6 sn 1") // unit 5 had nothing to reset
	x.s.Managed(x.now, pdu.FunctionComplete)
	x.want("function 5 lun 1 sn 2", "send 0 sn 2", "send 7 sn 3")
	x.s.Managed(x.now, pdu.FunctionComplete)
	x.want("send 1 sn 4", "send 3 sn 5", "send 5 sn 6", "send 8 sn 7")
}

// TestKnownTargets: a target that ends the old session by itself needs no reset of the unit,
// and a command whose unit nobody checks is not repeated.
func TestKnownTargets(t *testing.T) {
	x := newScript(t).up(6)
	a, b := command(1, 3, write), command(2, 3, read)
	a.Ended, b.Ended = true, true
	c := command(3, 4, read)
	c.Once = true
	for _, one := range []*Command{a, b, c} {
		x.submit(one)
	}
	x.lines = nil
	x.s.Broken(x.now, errors.New("end of the stream"))
	x.want("drop", "3 uncertain", "held")
	x.at(2 * time.Second)
	x.connected(100)
	x.want("login", "connect", "up", "send 1 sn 1", "send 2 sn 2")
}

// TestResetRefused: without the reset, a repeated write is not safe.
func TestResetRefused(t *testing.T) {
	x := newScript(t).up(100)
	x.submit(command(1, 9, write))
	x.submit(command(2, 9, read))
	x.s.Broken(x.now, nil)
	x.at(2 * time.Second)
	x.submit(command(3, 9, write))
	x.connected(100)
	x.lines = nil
	x.s.Managed(x.now, pdu.FunctionNotSupported)
	x.want("1 uncertain", "unprotected lun 9 response 5", "send 2 sn 1", "send 3 sn 2")
}

// TestReplayLimit: a command that ends every connection is not sent for ever.
func TestReplayLimit(t *testing.T) {
	x := newScript(t).up(100)
	c := x.submit(command(1, 0, read))
	for range MaxReplays {
		x.s.Broken(x.now, nil)
		x.at(10 * time.Second)
		x.connected(100)
	}
	if !x.s.Live(c) {
		t.Fatalf("%q", x.lines)
	}
	x.lines = nil
	x.s.Broken(x.now, nil)
	x.want("drop", "1 uncertain", "held")
}

// TestBackOff: attempts become rarer, and the session is lost in the end. Progress starts
// the waits anew.
func TestBackOff(t *testing.T) {
	x := newScript(t).up(100)
	x.submit(command(1, 0, write))
	x.lines = nil
	begin := x.now
	x.s.Broken(x.now, nil)
	x.want("drop", "held")
	var waits []time.Duration
	for {
		last := x.now
		x.now = x.s.Deadline()
		x.s.Tick(x.now)
		if s, _ := x.s.State(); s == Lost {
			break
		}
		waits = append(waits, x.now.Sub(last))
		x.s.Failed(x.now, errors.New("connection refused"))
	}
	want := []time.Duration{2 * time.Second, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second}
	if !slices.Equal(waits[:len(want)], want) || x.now.Sub(begin) != 120*time.Second {
		t.Errorf("waits %v, lost after %v", waits, x.now.Sub(begin))
	}
	if x.lines[len(x.lines)-2] != "1 session lost" || x.lines[len(x.lines)-1] != "lost" {
		t.Errorf("%q", x.lines[len(x.lines)-2:])
	}

	x = newScript(t).up(100)
	for range 50 { // 50 losses with progress in between
		c := x.submit(command(1, 0, read))
		x.s.Finished(c)
		x.s.Broken(x.now, nil)
		x.at(2 * time.Second)
		x.at(3 * time.Second)
		x.connected(100)
		x.now = x.now.Add(time.Second)
	}
	if s, _ := x.s.State(); s != Up {
		t.Errorf("%v", s)
	}
}

// TestLoginStatuses: which refusals end a session that was up.
func TestLoginStatuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want State
	}{
		{errors.New("connection refused"), Held},
		{&login.Refused{Status: pdu.ServiceUnavailable, ByPeer: true}, Held},
		{&login.Refused{Status: pdu.OutOfResources, ByPeer: true}, Held},
		{&login.Refused{Status: pdu.TargetNotFound, ByPeer: true}, Held},
		{&login.Refused{Status: pdu.AuthorizationFailure, ByPeer: true}, Held},
		{&login.Refused{Status: pdu.AuthenticationFailure, ByPeer: true}, Lost},
		{&login.Refused{Status: pdu.TargetRemoved, ByPeer: true}, Lost},
		{&login.Refused{Status: pdu.AuthenticationFailure}, Lost}, // the target proves nothing
		{fmt.Errorf("portal: %w", &login.Refused{Status: pdu.InitiatorError, ByPeer: true}), Lost},
	} {
		x := newScript(t).up(100)
		x.s.Broken(x.now, nil)
		x.at(5 * time.Second)
		x.s.Failed(x.now, c.err)
		if s, cause := x.s.State(); s != c.want || cause != c.err {
			t.Errorf("%v: %v, %v", c.err, s, cause)
		}
	}
	x := newScript(t).up(100)
	x.s.Broken(x.now, nil)
	x.at(5 * time.Second)
	x.s.Mismatch(errors.New("another unit"))
	if s, _ := x.s.State(); s != Lost {
		t.Errorf("another unit: %v", s)
	}
	x = newScript(t).up(100)
	x.s.Broken(x.now, nil)
	x.at(5 * time.Second)
	x.lines = nil
	x.at(115 * time.Second) // the login gives no answer
	x.want("drop", "lost")
}
