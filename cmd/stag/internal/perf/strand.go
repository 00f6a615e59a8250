package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perftest"
	"github.com/stag-rdma/stag/rdma"
)

// strand is a QP of a partner's test. One goroutine at a time uses it.
type strand struct {
	*partner
	index   int
	arrival uint64 // at the server: the number of its connection
	cq      *rdma.CQ
	qp      *rdma.QP
	theirs  perftest.Dest
	again   []rdma.RecvWR // receives that have been used
	wrs     []rdma.SendWR // of one call
	strandProgress
}

// strandProgress is how far a strand is with a size.
type strandProgress struct {
	size      int    // octets of a message
	stride    int    // octets from one place in the memory to the next
	places    uint64 // in the memory
	posted    uint64 // messages of ours
	signaled  uint64 // of them, those up to the last that has a completion
	completed uint64 // of them
	inside    uint64 // of them, those within the margins
	granted   uint64 // of them, those that the peer says have arrived
	received  uint64 // Sends of the peer's
	credited  uint64 // of them, those that it has been told of
	crediting bool   // it is being told
	idle      bool   // nothing has come for a while
	begun     time.Time
	heard     time.Time // when something came
}

// creditID is the ID of the work request that tells the peer of its Sends.
const creditID = 1 << 63

// spare is how many work requests there are beside messages, at most.
const spare = 4

func (p *partner) makeStrands() (err error) {
	pd, err := p.adapter.AllocPD()
	if err != nil {
		return err
	}
	in, out := p.rights()
	if p.in, err = pd.AllocMR(p.QPs*p.area(p.page), in); err != nil {
		return err
	}
	if p.out, err = pd.AllocMR(p.QPs*p.area(p.page), out); err != nil {
		return err
	}
	if p.credits, err = pd.AllocMR(p.QPs*creditLen, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	for i := range p.QPs {
		x := &strand{partner: p, index: i}
		if err := x.make(pd); err != nil {
			return err
		}
		p.strands = append(p.strands, x)
	}
	return nil
}

// area is how many octets of each region a QP has.
func (o Options) area(page int) int { return max(o.largest(), page) }

// rights are what may be done with the two regions.
func (o Options) rights() (in, out rdma.Access) {
	switch o.Test.op() {
	case rdma.WRWrite:
		return rdma.LocalWrite | rdma.RemoteWrite, 0
	case rdma.WRRead:
		return rdma.RemoteRead, rdma.LocalWrite
	}
	return rdma.LocalWrite, 0
}

// make makes the QP, with its first receives. The adapter's Close takes it away.
func (x *strand) make(pd *rdma.PD) (err error) {
	sends, receives := x.txDepth()+spare, x.strandReceives()
	if x.cq, err = x.adapter.CreateCQ(sends + receives); err != nil {
		return err
	}
	x.qp, err = pd.CreateQP(rdma.QPConfig{SendCQ: x.cq, RecvCQ: x.cq, SendDepth: sends, RecvDepth: max(receives, 1), MaxSGE: 1, MaxInline: max(x.Inline, creditLen)})
	if err != nil {
		return err
	}
	for range receives {
		x.again = append(x.again, x.receive())
	}
	return x.repost()
}

// takes says whether this end gets Sends.
func (o Options) takes() bool {
	return o.Test.op() == rdmaSend && (o.Test.Latency() || o.Both || o.Address == "")
}

// strandReceives is how many receives are posted. perftest makes an odd number
// of them even.
func (o Options) strandReceives() int {
	if !o.takes() {
		return 0
	}
	return o.rxDepth() + 1
}

// receive is a receive. All have the same memory: what comes is not looked at.
func (x *strand) receive() rdma.RecvWR {
	n := x.area(x.page)
	return rdma.RecvWR{SGL: []rdma.SGE{x.in.SGE(x.index*n, n)}}
}

// repost posts the receives that have been used.
func (x *strand) repost() error {
	if len(x.again) == 0 {
		return nil
	}
	_, err := x.qp.PostRecv(x.again...)
	x.again = x.again[:0]
	return err
}

// params has room for the Reads that are to be under way.
func (x *strand) params() (p rdma.ConnParams) {
	if x.Test.op() == rdma.WRRead {
		p.IRD, p.ORD = mostReads, mostReads
	}
	// The client of write_lat waits for the server's first Write, which the
	// server sends only when the client has said by the control connection that
	// it is connected.
	p.Eager = x.Test == WriteLat
	return p
}

// dest is what the peer must know.
func (x *strand) dest() perftest.Dest {
	d := perftest.Dest{OutReads: 1, QPN: x.qp.Number(), Key: uint32(x.in.RKey()), Address: x.in.Addr() + uint64(x.index*x.area(x.page))}
	switch x.Test.op() {
	case rdma.WRRead:
		d.OutReads = mostReads
	case rdmaSend:
		d.Key, d.Address = uint32(x.credits.RKey()), x.credits.Addr()+uint64(x.index*creditLen)
	}
	return d
}

// begin prepares for a size. The peer has sent nothing of it yet.
func (x *strand) begin(size int) {
	now := time.Now()
	x.strandProgress = strandProgress{size: size, places: 1, begun: now, heard: now}
	if !x.Test.Latency() {
		octets, places := perftest.Stride(size, x.page, x.line)
		x.stride, x.places = octets, uint64(places)
	}
	clear(x.grant())
}

// grant is the memory where the peer says how many Sends it has had.
func (x *strand) grant() []byte { return x.credits.Bytes()[x.index*creditLen:][:creditLen] }

// await waits until something has happened, and no longer than nap.
func (x *strand) await(ctx context.Context, nap time.Duration) error {
	if x.cutShort() {
		return ErrInterrupted
	}
	var got [64]rdma.Completion
	n := x.poll(x.cq, got[:])
	if n == 0 {
		if err := x.sleep(ctx, nap); err != nil {
			return err
		}
		n = x.cq.Poll(got[:])
	}
	x.idle = n == 0
	if n == 0 {
		return x.check(ctx)
	}
	x.heard = time.Now()
	for i := range got[:n] {
		if err := x.handle(ctx, &got[i]); err != nil {
			return err
		}
	}
	return x.repost()
}

var errNap = errors.New("slept enough")

func (x *strand) sleep(ctx context.Context, nap time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nap, errNap)
	defer cancel()
	if err := x.cq.Wait(ctx); err != nil && !errors.Is(err, errNap) {
		return err
	}
	return nil
}

// check looks, while nothing happens, for what no completion tells.
func (x *strand) check(ctx context.Context) error {
	select {
	case <-x.qp.Done():
		return x.failed(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	switch {
	case x.cutShort():
		return ErrInterrupted
	case time.Since(x.heard) > stalled:
		return fmt.Errorf("nothing has come for %v, with %d messages sent and %d received: were both ends given the same -n, -s and -r?", stalled, x.posted, x.received)
	}
	return nil
}

// cutShort says whether we were interrupted in a test that has no end then.
func (x *strand) cutShort() bool { return x.interrupted() && !x.stoppable() }

// stoppable says whether the peer goes along with fewer messages than -n.
func (o Options) stoppable() bool { return o.Test.op() != rdmaSend && o.Test != WriteLat }

func (x *strand) handle(ctx context.Context, c *rdma.Completion) error {
	switch {
	case c.Status != rdma.Success:
		return x.failed(ctx)
	case c.Op == rdma.WCRecv:
		x.again = append(x.again, x.receive())
		return x.arrived(c)
	case c.ID == creditID:
		x.crediting = false
	default:
		x.completed = c.ID
	}
	return nil
}

// arrived takes a Send of the peer's into account.
func (x *strand) arrived(c *rdma.Completion) error {
	x.received++
	switch {
	case int(c.Length) != x.size:
		return fmt.Errorf("a message of %d octets came, want %d: was the peer given another -s?", c.Length, x.size)
	case x.Duration == 0 && x.received > x.Iterations:
		return fmt.Errorf("more than %d messages came: was the peer given another -n?", x.Iterations)
	}
	return nil
}

// failed says why the connection ended.
func (x *strand) failed(ctx context.Context) error {
	select {
	case <-x.qp.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := x.qp.Err(); err != nil {
		return err
	}
	return errLeft
}

// credit tells the peer how many of its Sends have come: after a third of the
// receives, as perftest does, and when nothing comes any more, since the peer
// may have fewer. The last are not told: nobody waits for it.
func (x *strand) credit() error {
	due := x.received - x.credited
	switch {
	case due == 0 || x.crediting || x.Test.Latency():
		return nil
	case x.Duration == 0 && x.received == x.Iterations:
		return nil
	case due < max(x.window()/3, 1) && !x.idle:
		return nil
	}
	x.credited, x.crediting = x.received, true
	_, err := x.qp.PostSend(rdma.SendWR{
		ID: creditID, Op: rdma.WRWrite, Flags: rdma.Signaled, RKey: rdma.STag(x.theirs.Key), RemoteAddr: x.theirs.Address,
		Inline: binary.LittleEndian.AppendUint32(nil, uint32(x.received)),
	})
	return err
}

// window is how many Sends the receiver has room for, as perftest counts them.
func (o Options) window() uint64 {
	w := uint64(o.rxDepth())
	if o.Duration == 0 {
		w = min(w, o.Iterations)
	}
	return w
}

// underway is how many of our Sends the peer has not said to have had. It says
// so in memory: a number that cannot be is an old one.
func (x *strand) underway() uint64 {
	said := binary.LittleEndian.Uint32(x.grant())
	if n := uint64(uint32(x.posted) - said); n < x.posted-x.granted {
		x.granted = x.posted - n
	}
	return x.posted - x.granted
}
