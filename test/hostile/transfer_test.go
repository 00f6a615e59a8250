package hostile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/rdma"
)

// end is one end of a verified transfer.
type end struct {
	a  *rdma.Adapter
	pd *rdma.PD
	cq *rdma.CQ
	qp *rdma.QP
	mr *rdma.MR // slots of the messages, followed by memory for the receives
}

// A transfer sends messages of slotLen octets by RDMA Write, each followed by a Send. The receiver checks every octet
// before it returns the slot.
const (
	slots   = 8
	slotLen = 32 << 10
	noteLen = 8
)

func (r *rig) newEnd(a *rdma.Adapter) *end {
	r.Helper()
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: slots*slotLen + 2*slots*noteLen, Access: everyone,
		QP: rdma.QPConfig{SendDepth: 64, RecvDepth: 2 * slots},
	})
	r.Must(err)
	e := &end{a: a, pd: ep.PD, mr: ep.MR, cq: ep.SendCQ, qp: ep.QP}
	for i := range 2 * slots {
		r.Must(e.receive(uint64(i)))
	}
	return e
}

// receive posts the receive i.
func (e *end) receive(i uint64) error {
	_, err := e.qp.PostRecv(rdma.RecvWR{ID: i, SGL: []rdma.SGE{e.mr.SGE(slots*slotLen+int(i)*noteLen, noteLen)}})
	return err
}

// closeEnd closes everything of e and checks that there is no error.
func (r *rig) closeEnd(e *end) {
	r.Helper()
	r.Check(e.qp.Close())
	r.Check(e.cq.Close())
	r.Check(e.mr.Close())
	r.Check(e.pd.Close())
}

// neighbour returns another, well-behaved adapter at the place of the raw peers.
func (r *rig) neighbour() *rdma.Adapter {
	r.Helper()
	var a *rdma.Adapter
	r.Must(r.there(func() (err error) {
		a, err = rdma.Open(rdma.Config{KernelPort: true, RegionHeap: heap})
		return err
	}))
	r.Cleanup(func() { r.Check(a.Close()) })
	return a
}

// connect connects from to to, whose adapter has the listener.
func (r *rig) connect(l *rdma.Listener, from, to *end) {
	r.Helper()
	dialled := make(chan error, 1)
	private := make([]byte, 4)
	binary.BigEndian.PutUint32(private, uint32(from.mr.RKey()))
	go func() { dialled <- from.qp.Dial(r.Ctx(), l.Addr().String(), rdma.ConnParams{PrivateData: private}) }()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	binary.BigEndian.PutUint32(private, uint32(to.mr.RKey()))
	r.Must(req.Accept(r.Ctx(), to.qp, rdma.ConnParams{PrivateData: private}))
	r.Must(<-dialled)
}

// next waits for completions and gives each of them to f.
func (e *end) next(ctx context.Context, f func(c rdma.Completion) error) error {
	if err := e.cq.Wait(ctx); err != nil {
		return err
	}
	var some [32]rdma.Completion
	for _, c := range some[:e.cq.Poll(some[:])] {
		if c.Status != rdma.Success {
			return fmt.Errorf("%v completed with: %v (%w)", c.Op, c.Status, errors.Join(errFailed, e.qp.Err()))
		}
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}

// errFailed is a work request that did not succeed.
var errFailed = errors.New("failed")

// fill fills slot with the octets of message i.
func fill(slot []byte, i uint64) {
	for at := 0; at < len(slot); at += 8 {
		binary.LittleEndian.PutUint64(slot[at:], (i+1)*0x9e3779b97f4a7c15+uint64(at))
	}
}

// differs returns the index of the first octet that does not belong to message i, or
// -1.
func differs(slot []byte, i uint64) int {
	for at := 0; at < len(slot); at += 8 {
		if binary.LittleEndian.Uint64(slot[at:]) != (i+1)*0x9e3779b97f4a7c15+uint64(at) {
			return at
		}
	}
	return -1
}

// send sends n messages.
func (e *end) send(ctx context.Context, n uint64) error {
	rkey := rdma.STag(binary.BigEndian.Uint32(e.qp.Conn().PrivateData))
	credits := slots
	for i := uint64(0); i < n || credits < slots; {
		for ; i < n && credits > 0; i++ {
			if err := e.message(rkey, i); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			credits--
		}
		err := e.next(ctx, func(c rdma.Completion) error {
			if c.Op != rdma.WCRecv {
				return nil
			}
			credits++
			return e.receive(c.ID)
		})
		if err != nil {
			return fmt.Errorf("sender, at message %d: %w", i, err)
		}
	}
	return nil
}

// message posts the Write of message i and the Send that tells of it.
func (e *end) message(rkey rdma.STag, i uint64) error {
	at := int(i%slots) * slotLen
	fill(e.mr.Bytes()[at:at+slotLen], i)
	_, err := e.qp.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{e.mr.SGE(at, slotLen)}, RKey: rkey, RemoteAddr: uint64(at)},
		rdma.SendWR{ID: i, Op: rdma.WRSend, Flags: rdma.Signaled, Inline: binary.BigEndian.AppendUint64(nil, i)},
	)
	return err
}

// take receives n messages, and checks all of them.
func (e *end) take(ctx context.Context, n uint64) error {
	var i uint64
	for i < n {
		err := e.next(ctx, func(c rdma.Completion) error {
			if c.Op != rdma.WCRecv {
				return nil
			}
			note := e.mr.Bytes()[slots*slotLen+int(c.ID)*noteLen:][:noteLen]
			if got := binary.BigEndian.Uint64(note); got != i || c.Length != noteLen {
				return fmt.Errorf("told of message %d, want %d", got, i)
			}
			at := int(i%slots) * slotLen
			if wrong := differs(e.mr.Bytes()[at:at+slotLen], i); wrong >= 0 {
				return fmt.Errorf("message %d is wrong from octet %d on", i, wrong)
			}
			i++
			if err := e.receive(c.ID); err != nil {
				return err
			}
			_, err := e.qp.PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: note})
			return err
		})
		if err != nil {
			return fmt.Errorf("receiver, at message %d: %w", i, err)
		}
	}
	return nil
}

// transfer is a running verified transfer.
type transfer struct {
	from, to *end
	done     chan error // two values
}

// begin starts to send n messages between two connected ends.
func begin(ctx context.Context, from, to *end, n uint64) *transfer {
	x := &transfer{from, to, make(chan error, 2)}
	go func() { x.done <- from.send(ctx, n) }()
	go func() { x.done <- to.take(ctx, n) }()
	return x
}

// wait waits for the end of both sides and returns their errors.
func (x *transfer) wait() error { return errors.Join(<-x.done, <-x.done) }
