package daemon

import (
	"errors"
	"sync"

	carrier "github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// owners says which client's object an event of the adapter concerns.
type owners struct{ all sync.Map }

func (o *owners) add(inner any, of object) { o.all.Store(inner, of) }
func (o *owners) remove(inner any)         { o.all.Delete(inner) }
func (o *owners) find(inner any) any {
	v, _ := o.all.Load(inner)
	return v
}

// Numbers of ibv_event_type.
const (
	eventCQErr       = 0
	eventQPFatal     = 1
	eventQPAccessErr = 3
	eventCommEst     = 4
	eventSQDrained   = 5
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortErr     = 10
	eventSRQLimit    = 15
	eventLastWQE     = 16
)

// qpEvents maps the adapter's events of a QP to those of libibverbs.
var qpEvents = map[rdma.EventType]uint32{
	rdma.QPFatal: eventQPFatal, rdma.CommEst: eventCommEst, rdma.SQDrained: eventSQDrained, rdma.QPLastWQEReached: eventLastWQE,
}

var portEvents = map[rdma.EventType]uint32{rdma.PortDown: eventPortErr, rdma.PortUp: eventPortActive, rdma.PortLost: eventPortErr}

// dispatch passes the events of the adapter on to clients, until Close.
func (d *Daemon) dispatch() {
	for {
		select {
		case e := <-d.adapter.Events():
			d.pass(e)
		case <-d.stop:
			return
		}
	}
}

func (d *Daemon) pass(e rdma.Event) {
	if kind, ok := qpEvents[e.Type]; ok {
		if q, ok := d.owners.find(e.QP).(*qp); ok && q.wants(e) {
			q.client.tell(proto.Async{Cookie: q.cookie, Event: kind, Kind: proto.KindQP}, q.handle, &q.sent)
		}
		return
	}
	if kind, ok := portEvents[e.Type]; ok {
		d.tellAll(proto.Async{Event: kind, PortNum: d.portNamed(e.Port)})
		return
	}
	switch e.Type {
	case rdma.CQOverrun:
		if q, ok := d.owners.find(e.CQ).(*cq); ok {
			q.client.tell(proto.Async{Cookie: q.cookie, Event: eventCQErr, Kind: proto.KindCQ}, q.handle, &q.sent)
		}
	case rdma.SRQLimitReached:
		if s, ok := d.owners.find(e.SRQ).(*srq); ok {
			s.client.tell(proto.Async{Cookie: s.cookie, Event: eventSRQLimit, Kind: proto.KindSRQ}, s.handle, &s.sent)
		}
	case rdma.DeviceFatal:
		d.tellAll(proto.Async{Event: eventDeviceFatal})
	}
}

// wants reports whether the client of the QP gets an event. SQ_DRAINED comes only on request,
// as in libibverbs. A QP of InfiniBand, which is connected by number, gets no event when the
// other end has gone.
func (q *qp) wants(e rdma.Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch e.Type {
	case rdma.SQDrained:
		return q.asksSQD
	case rdma.QPFatal:
		return !q.numbered || !errors.Is(e.Err, carrier.ErrReset)
	}
	return true
}

// tell sends an asynchronous event to the client. A client with several connections for such
// events gets it on each.
func (c *client) tell(body proto.Async, handle uint64, sent *counter) {
	m := &proto.Message{Op: proto.OpAsyncEvent, Handle: handle}
	*m.Async() = body
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.asyncs {
		if i != 0 {
			sent = nil // counted once
		}
		s.add(m, sent)
	}
}

func (d *Daemon) tellAll(body proto.Async) {
	for _, c := range d.all() {
		c.tell(body, 0, nil)
	}
}

// portNamed returns the number of a port, or 0.
func (d *Daemon) portNamed(name string) uint32 {
	for i, p := range d.ports() {
		if p.Name == name {
			return uint32(i + 1)
		}
	}
	return 0
}
