package iser

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/rdma"
)

// Sizes of a target's connection.
const (
	// Unexpected is how many requests outside of the command window may be there at a time:
	// MaxOutstandingUnexpectedPDUs (RFC 7145 §6.8).
	Unexpected = 32

	// RecvLength is the longest data segment that a target takes in octets
	// (TargetRecvDataSegmentLength). Only texts and pings have any. SendLength is the
	// longest one that it sends (InitiatorRecvDataSegmentLength).
	RecvLength = 512
	SendLength = 8192

	targetReads  = 32 // RDMA Reads at a time; the initiator may permit fewer
	targetWrites = 64 // RDMA Writes at a time
	targetTexts  = 4  // long PDUs at a time

	goodbyeTime = 5 * time.Second // for the initiator to close the connection after its logout
)

// Slots returns how many jobs a target with this command window needs.
func Slots(window int) int { return window + Unexpected + targetReads + targetWrites }

// TargetChannel returns the configuration of the Channel of a target. The data is in m.
func TargetChannel(a *rdma.Adapter, m *Memory, window int) Config {
	return Config{
		Adapter: a, PD: m.pd, Receives: window + Unexpected, Sends: targetTexts,
		Work: window + Unexpected, Data: targetReads + targetWrites,
	}
}

// TargetHeap returns how many octets of the region heap the Channel of a target takes at
// most.
func TargetHeap(window int) int {
	return channelHeap(window+Unexpected, RecvLength, targetTexts, SendLength)
}

// TargetParams are the parameters with which a target accepts a connection.
func TargetParams() rdma.ConnParams { return rdma.ConnParams{IRD: 1, ORD: targetReads} }

// Target moves the PDUs and the data of a flow.Target over a Channel. Steps run on the
// goroutines of the adapter that find completions, and on those that call Wake.
type Target struct {
	turns
	ch     *Channel
	memory *Memory
	flow   *flow.Messages
	gone   atomic.Bool // the connection has ended
	timer  *time.Timer

	// The step owns these fields.
	jobs    []*flow.Job // whose data is moving, by the ID of the work request
	ids     []int       // that can be used
	sge     [1]rdma.SGE // of the work request that is being posted
	reads   int         // of jobs
	most    int         // reads at most
	alarm   clock.Instant
	leaving bool
	aborted bool
	over    bool
	cause   error
}

// NewTarget makes the Target of a Channel whose login is done, and that has been started.
// The caller calls Run, and Close when t has ended.
func NewTarget(ch *Channel, m *Memory, t *flow.Target) *Target {
	x := &Target{
		ch: ch, memory: m, flow: t.Messages(),
		jobs: make([]*flow.Job, targetReads+targetWrites), most: min(targetReads, ch.qp.Conn().ORD),
	}
	x.turns.device, x.turns.step = ch.cfg.Adapter.Device().(*adapter.Adapter), x.step
	for i := range x.jobs {
		x.ids = append(x.ids, i)
	}
	x.timer = time.AfterFunc(time.Hour, x.Wake)
	return x
}

// Run begins to serve the initiator. It does not wait.
func (x *Target) Run() {
	x.device.Go(func() {
		<-x.ch.Done()
		x.gone.Store(true)
		x.Wake()
	})
	x.ch.link() // from here on the step rings
	x.ch.News(x.Wake)
}

// Close frees what the connection has. The flow.Target must have ended.
func (x *Target) Close() error {
	x.timer.Stop()
	return x.ch.Close()
}

// Device returns the name of the port of the connection.
func (x *Target) Device() string { return x.ch.device() }

// step does everything that can be done now.
func (x *Target) step(now clock.Instant) {
	gone := x.gone.Load()
	if x.over {
		return
	}
	x.hear(now)
	if gone {
		x.end()
		return
	}
	if why := x.flow.Due(now); why != flow.OK {
		x.abort(nil)
		return
	}
	x.move()
	x.ch.ring()
	if x.flow.Farewell() && !x.leaving {
		x.leaving = true
		x.device.Go(x.leave)
	}
	x.setAlarm(now)
}

// end takes note of the end of the connection. All work requests have completed, and
// nothing uses the memory of jobs.
func (x *Target) end() {
	x.over = true
	x.timer.Stop()
	err := x.ch.qp.Err()
	if x.cause != nil {
		err = x.cause
	}
	x.flow.Fault(err)
}

// hear takes what has arrived, and what has moved.
func (x *Target) hear(now clock.Instant) {
	var e Event
	for {
		ok, err := x.ch.Poll(&e)
		switch {
		case err != nil:
			x.abort(err)
			return
		case !ok:
			return
		case e.Message.PDU != nil:
			if why := x.flow.Receive(now, e.Message.ISER, e.Message.PDU, e.Message.AHS, e.Message.Data); why != flow.OK {
				x.abort(nil)
				return
			}
			if err := x.ch.Release(&e.Message); err != nil {
				x.abort(err)
				return
			}
		default:
			x.moved(&e.Done)
		}
	}
}

// moved goes on with a job whose data has moved. A work request that has failed ends the
// connection, and the job keeps its memory until then.
func (x *Target) moved(c *rdma.Completion) {
	if c.Status != rdma.Success {
		return
	}
	id := int(c.ID)
	j := x.jobs[id]
	x.jobs[id] = nil
	x.ids = append(x.ids, id)
	if c.Op == rdma.WCRead {
		x.reads--
	}
	x.flow.Moved(j)
}

// move sends and moves what it can.
func (x *Target) move() {
	var t flow.Transfer
	for len(x.ids) != 0 && x.ch.Room(0, SendLength) && x.flow.Next(&t, x.reads < x.most) {
		if err := x.transfer(&t); err != nil {
			x.abort(err)
			return
		}
	}
}

// transfer does a transfer.
func (x *Target) transfer(t *flow.Transfer) error {
	data := len(t.Data) != 0
	if data {
		wr, err := x.request(t)
		if err != nil {
			return err
		}
		if !t.PDU {
			x.ch.wr[0] = wr
			return x.ch.postSend(x.ch.wr[:1])
		}
		x.ch.Ahead(wr)
	}
	if !x.ch.Invalidates() {
		t.Invalidate = 0
	}
	m := x.flow
	if err := x.ch.Send(&pdu.ISERFields{}, m.Header(), nil, m.Length(), m.Fill, t.Invalidate); err != nil {
		return err
	}
	if t.Job != nil && !data {
		m.Moved(t.Job)
	}
	return nil
}

// request makes the work request for the data of a transfer.
func (x *Target) request(t *flow.Transfer) (wr rdma.SendWR, err error) {
	e, ok := x.memory.find(t.Data)
	if !ok {
		return wr, errors.New("iser: the data of a command is in memory that is not registered")
	}
	id := x.ids[len(x.ids)-1]
	x.ids = x.ids[:len(x.ids)-1]
	x.jobs[id] = t.Job
	x.sge[0] = e
	wr = rdma.SendWR{ID: uint64(id), Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: x.sge[:], RKey: t.STag, RemoteAddr: t.TO}
	if t.Read {
		wr.Op = rdma.WRRead
		x.reads++
	}
	return wr, nil
}

// abort resets the connection, because of err or by the Target's own reason.
func (x *Target) abort(err error) {
	if x.aborted {
		return
	}
	x.aborted, x.cause = true, err
	x.ch.qp.Abort()
}

// leave ends the connection after a logout.
func (x *Target) leave() {
	ctx, cancel := context.WithTimeout(x.device.Life(), goodbyeTime)
	defer cancel()
	if x.ch.qp.Disconnect(ctx) != nil {
		x.ch.qp.Abort()
	}
}

// setAlarm makes the timer wake the Target when something is due.
func (x *Target) setAlarm(now clock.Instant) {
	at := x.flow.Deadline()
	if at == clock.Never || x.alarm != clock.Never && x.alarm <= at && !x.alarm.Due(now) {
		return
	}
	x.alarm = at
	x.timer.Reset(max(0, at.Sub(now)))
}
