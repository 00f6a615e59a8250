package iscsi

import (
	"context"
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/clock"
)

// calls runs commands for goroutines that wait for the answer. Whoever sees a completion
// gives it to the goroutine that waits for it.
type calls struct {
	s    *Session
	c    *sessionConn
	q    *flow.Queue
	room chan struct{} // has an element for each command in flight

	posting sync.Mutex // held during Post and Cancel
	last    uint64     // ID of the newest command

	mu      sync.Mutex // held during Poll; guards the field below
	waiting map[uint64]*call

	naps nap // of those who wait
}

// call is a command in flight.
type call struct {
	id   uint64
	done chan flow.Completion // has room for the completion
}

// init makes a connection's two groups of calls ready.
func (c *sessionConn) init() {
	c.calls.begin(c, c.flow.NewQueue(0, callSlots))
	c.manage.begin(c, c.flow.NewControlQueue(callSlots, controlSlots))
}

func (c *calls) begin(of *sessionConn, q *flow.Queue) {
	n := q.Depth()
	c.s, c.c, c.q = of.s, of, q
	c.room = make(chan struct{}, n)
	c.waiting = make(map[uint64]*call) // it grows: few sessions have many calls at a time
	c.q.News().Fire = c.reap
	c.naps.ready = func() bool { return len(c.naps.x.done) != 0 || c.naps.ctx.Err() != nil }
	c.q.Arm()
}

// reap gives the completions to those who wait for them. It runs after steps, and does not
// block for long.
func (c *calls) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var got [4]flow.Completion
	for {
		n := c.q.Poll(got[:])
		for i := range got[:n] {
			x := c.waiting[got[i].ID]
			delete(c.waiting, got[i].ID)
			x.done <- got[i]
			<-c.room
			c.naps.end(c.c)
		}
		if n != 0 {
			if c.c.owing.Load() {
				c.s.wakeWatcher()
			}
			continue
		}
		if c.q.Arm(); !c.q.Ready() {
			return
		}
	}
}

// start posts a command. It waits for a free slot.
func (c *calls) start(ctx context.Context, command flow.Command) (*call, error) {
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.s.done:
		return nil, c.s.lost()
	}
	return c.post(command)
}

// post posts a command for which there is room.
func (c *calls) post(command flow.Command) (*call, error) {
	x := &call{done: make(chan flow.Completion, 1)}
	c.posting.Lock()
	c.last++
	x.id, command.ID = c.last, c.last
	c.mu.Lock()
	c.waiting[x.id] = x
	c.mu.Unlock()
	_, err := c.q.Post(command)
	c.posting.Unlock()
	if err != nil {
		c.mu.Lock()
		delete(c.waiting, x.id)
		c.mu.Unlock()
		<-c.room
		if err == flow.ErrEnded {
			err = ErrSessionLost
		}
		return nil, err
	}
	c.c.link().Post(true)
	return x, nil
}

// wait returns the answer to a command. If ctx ends before, wait cancels the command: the
// buffers are free when wait returns.
func (c *calls) wait(ctx context.Context, x *call) (flow.Completion, error) {
	if r := c.c.link().Runner(); r != nil {
		for end := clock.Now().Add(c.s.spin(r)); len(x.done) == 0 && !r.Awake(); {
			now := clock.Now()
			if now >= end {
				break
			}
			r.Visit(now)
		}
		if !x.nap(ctx, c) {
			r.Watch()
		}
	}
	var got flow.Completion
	select {
	case got = <-x.done:
	case <-ctx.Done():
		c.posting.Lock()
		c.q.Cancel(x.id)
		c.posting.Unlock()
		c.s.wake()
		got = <-x.done
	}
	switch got.Why {
	case flow.OK:
		return got, nil
	case flow.Canceled:
		return got, context.Cause(ctx)
	case flow.Lost:
		return got, c.s.lost()
	}
	return got, got.Why
}

func (c *calls) do(ctx context.Context, command flow.Command) (flow.Completion, error) {
	x, err := c.start(ctx, command)
	if err != nil {
		return flow.Completion{}, err
	}
	return c.wait(ctx, x)
}

// Command is a SCSI command for Session.Do.
type Command struct {
	LUN uint16
	CDB []byte // 6 to 32 octets

	// In takes data from the target. Out is data for the target. A command has one of them,
	// or neither. The octets belong to the session until Do returns.
	In, Out []byte
}

// Result is the answer to a command.
type Result struct {
	Status uint8  // SCSI status (SAM-5 §5.3.1)
	Sense  []byte // sense data (SPC-4 §4.5)
	Length int    // octets that were transferred
}

// Do executes any SCSI command. If the status is not GOOD, the error is a *StatusError, and
// the Result is valid. If ctx ends first, Do cancels the command: the octets of In and Out
// are the caller's when Do returns, though the target may still execute the command. Errors
// also: ErrSessionLost, ErrUncertain.
//
// A session that logs in again makes sure that the units of its Disks are the same. It
// knows nothing of the unit of another LUN. A command that had been sent to such a unit and
// reads or writes its blocks completes with ErrUncertain, and is not repeated.
func (s *Session) Do(ctx context.Context, c Command) (Result, error) {
	return s.calling().execute(ctx, c.LUN, c.CDB, list(c.In), list(c.Out))
}

// list returns a list of one buffer, or of none.
func list(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	return [][]byte{b}
}

func (c *calls) execute(ctx context.Context, lun uint16, cdb []byte, in, out [][]byte) (Result, error) {
	got, err := c.do(ctx, flow.Command{LUN: uint64(scsi.LUNOf(lun)), CDB: cdb, In: in, Out: out})
	if err != nil {
		return Result{}, err
	}
	return result(cdb, &got)
}

// result returns the Result of an answer, and an error unless it says GOOD.
func result(cdb []byte, got *flow.Completion) (Result, error) {
	r := Result{Status: got.Status(), Sense: got.Sense, Length: int(got.Length)}
	if got.Header.Response() != 0 && got.Header.Opcode() == 0x21 {
		return r, fmt.Errorf("iscsi: the target failed to execute the command (response %#02x)", got.Header.Response())
	}
	if status := scsi.Status(r.Status); !status.Ended() {
		return r, statusError(cdb, r)
	}
	return r, nil
}

// statusError returns the error of a status. It names the command, unless cdb is nil: a
// completion of a queue does not have the CDB.
func statusError(cdb []byte, r Result) error {
	text := "iscsi: "
	if cdb != nil {
		var c scsi.CDB
		copy(c[:], cdb)
		text += c.String() + ": "
	}
	text += scsi.Status(r.Status).String()
	if sense, err := scsi.ParseSense(r.Sense); err == nil {
		text += ": " + sense.String()
	}
	return &StatusError{Status: r.Status, Sense: r.Sense, text: text}
}
