package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perftest"
	"github.com/stag-rdma/stag/rdma"
)

// strand is a lane whose peer is perftest. Its memory is a part of the regions of perftestPeer.
type strand struct {
	l       *lane
	peer    *perftestPeer
	arrival uint64        // at the server: the number that the client gave the connection
	theirs  perftest.Dest // Dest of the peer's end
	strandRound
}

// strandRound is the state of a strand's credits in a size.
type strandRound struct {
	stride    int       // distance from one message to the next in memory, in octets
	places    uint64    // number of messages in memory
	granted   uint64    // number of this end's Sends that the peer has reported as arrived
	credited  uint64    // number of the peer's Sends that this end has reported to the peer
	crediting bool      // true until the Write of a report has completed
	idle      bool      // true if nothing has arrived for a while
	heard     time.Time // time at which something last arrived
}

// creditID is the ID of the work request that reports to the peer how many of its Sends have arrived.
const creditID = aside

// spare is how many work requests other than messages can be posted at a time.
const spare = 4

func (p *perftestPeer) makeStrands() (err error) {
	pd, err := p.run.adapter.AllocPD()
	if err != nil {
		return err
	}
	in, out := p.run.rights()
	if p.in, err = pd.AllocMR(p.run.QPs*p.run.area(p.page), in); err != nil {
		return err
	}
	if p.out, err = pd.AllocMR(p.run.QPs*p.run.area(p.page), out); err != nil {
		return err
	}
	if p.credits, err = pd.AllocMR(p.run.QPs*creditLen, rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	for i := range p.run.QPs {
		x := &strand{l: &lane{run: p.run}, peer: p}
		x.l.talk = x
		x.place(i)
		if err := x.make(); err != nil {
			return err
		}
		p.strands, p.run.lanes = append(p.strands, x), append(p.run.lanes, x.l)
	}
	return nil
}

// place gives the strand the parts of the regions that belong to QP i.
func (x *strand) place(i int) {
	x.l.index = i
	x.l.local = place{mr: x.peer.out, at: i * x.l.run.area(x.peer.page)}
}

// area returns how many octets of each region a QP has.
func (o Options) area(page int) int { return max(o.largest(), page) }

// rights returns the access rights of the two regions.
func (o Options) rights() (in, out rdma.Access) {
	switch o.Test.op() {
	case rdma.WRWrite:
		return rdma.LocalWrite | rdma.RemoteWrite, 0
	case rdma.WRRead:
		return rdma.RemoteRead, rdma.LocalWrite
	}
	return rdma.LocalWrite, 0
}

// make makes the QP and posts its first receives. The adapter's Close closes it.
func (x *strand) make() error {
	o := x.l.run.Options
	receives := o.strandReceives()
	ep, err := x.l.run.adapter.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, MR: x.peer.in,
		QP: rdma.QPConfig{SendDepth: o.txDepth() + spare, RecvDepth: max(receives, 1), MaxSGE: 1, MaxInline: max(o.Inline, creditLen)},
	})
	if err != nil {
		return err
	}
	x.l.qp, x.l.cq = ep.QP, ep.SendCQ
	return x.l.listen(receives)
}

// takes reports whether this end receives Sends of the test.
func (o Options) takes() bool {
	return o.Test.op() == rdmaSend && (o.Test.Latency() || o.Both || o.Address == "")
}

// strandReceives returns how many receives are posted. perftest makes an odd number even.
func (o Options) strandReceives() int {
	if !o.takes() {
		return 0
	}
	return o.rxDepth() + 1
}

// receive returns a receive. All receives share the same memory, because the messages are not compared.
func (x *strand) receive(uint64) rdma.RecvWR {
	n := x.l.run.area(x.peer.page)
	return rdma.RecvWR{SGL: []rdma.SGE{x.peer.in.SGE(x.l.index*n, n)}}
}

// params returns parameters with room for the outstanding Reads.
func (x *strand) params() (p rdma.ConnParams) {
	if x.l.run.Test.op() == rdma.WRRead {
		p.IRD, p.ORD = mostReads, mostReads
	}
	// In write_lat the server sends its first Write without waiting for a message on this connection, because the
	// client waits for that Write. The server knows from the control connection that the client is connected.
	// A daemon cannot do that, and needs the first message of perftest's connection.
	p.Eager = x.l.run.Test == WriteLat && x.l.run.Daemon == ""
	return p
}

// dest returns the Dest of this end.
func (x *strand) dest() perftest.Dest {
	in, credits, i := x.peer.in, x.peer.credits, x.l.index
	d := perftest.Dest{OutReads: 1, QPN: x.l.qp.Number(), Key: uint32(in.RKey()), Address: in.Addr() + uint64(i*x.l.run.area(x.peer.page))}
	switch x.l.run.Test.op() {
	case rdma.WRRead:
		d.OutReads = mostReads
	case rdmaSend:
		d.Key, d.Address = uint32(credits.RKey()), credits.Addr()+uint64(i*creditLen)
	}
	return d
}

// hear stores the peer's Dest.
func (x *strand) hear(d perftest.Dest) {
	x.theirs, x.l.theirs = d, d.QPN
	x.l.remote = target{rdma.STag(d.Key), d.Address}
}

// begin prepares for a size. It must be called before the peer sends messages of that size.
func (x *strand) begin(size int) {
	now := time.Now()
	x.l.progress = progress{size: size, begun: now}
	x.strandRound = strandRound{places: 1, heard: now}
	if !x.l.run.Test.Latency() {
		octets, places := perftest.Stride(size, x.peer.page, x.peer.line)
		x.stride, x.places = octets, uint64(places)
	}
	clear(x.grant())
}

// grant returns the memory into which the peer writes how many of this end's Sends have arrived.
func (x *strand) grant() []byte { return x.peer.credits.Bytes()[x.l.index*creditLen:][:creditLen] }

// offset returns where message n begins. Messages use the places in memory in turn.
func (x *strand) offset(n uint64) int { return int(n%x.places) * x.stride }

// fill and compare do nothing: with perftest, the octets of messages do not matter.
func (x *strand) fill()                {}
func (x *strand) compare(uint64) error { return nil }

// news records that something has arrived.
func (x *strand) news() { x.idle, x.heard = false, time.Now() }

// check returns ErrInterrupted if this end was interrupted and the test cannot end early.
func (x *strand) check() error {
	if x.cutShort() {
		return ErrInterrupted
	}
	return nil
}

// quiet is called after a wait without a completion. It checks for events that cause no completion.
func (x *strand) quiet(ctx context.Context) error {
	x.idle = true
	select {
	case <-x.l.qp.Done():
		return x.failed(ctx, nil)
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	switch {
	case x.cutShort():
		return ErrInterrupted
	case time.Since(x.heard) > stalled:
		return fmt.Errorf("nothing has arrived for %v, with %d messages sent and %d received: were both ends given the same -n, -s and -r?", stalled, x.l.posted, x.l.received)
	}
	return nil
}

// cutShort reports whether this end was interrupted in a test that cannot end early.
func (x *strand) cutShort() bool { return x.l.run.interrupted() && !x.l.run.stoppable() }

// stoppable reports whether the peer accepts fewer messages than -n.
func (o Options) stoppable() bool { return o.Test.op() != rdmaSend && o.Test != WriteLat }

// sent records that the Write of a credit has completed.
func (x *strand) sent(*rdma.Completion) error {
	x.crediting = false
	return nil
}

// came counts a Send of the peer, after it has checked the Send's length.
func (x *strand) came(c *rdma.Completion) error {
	x.l.received++
	o := x.l.run.Options
	switch {
	case int(c.Length) != x.l.size:
		return fmt.Errorf("a message of %d octets came, want %d: was the peer given another -s?", c.Length, x.l.size)
	case o.Duration == 0 && x.l.received > o.Iterations:
		return fmt.Errorf("more than %d messages came: was the peer given another -n?", o.Iterations)
	}
	return nil
}

// failed returns why the connection ended.
func (x *strand) failed(ctx context.Context, _ *rdma.Completion) error {
	select {
	case <-x.l.qp.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := x.l.qp.Err(); err != nil {
		return err
	}
	return errLeft
}

// credit writes into the peer's memory how many of the peer's Sends have arrived. It writes when Sends have used a
// third of the receives since the last report, as perftest does. It also writes when no Sends arrive any more,
// because the peer may have fewer receives. It does not report the last Sends, because the peer does not wait for
// that report.
func (x *strand) credit() error {
	run, received := x.l.run, x.l.received
	due := received - x.credited
	switch {
	case due == 0 || x.crediting || run.Test.Latency():
		return nil
	case run.Duration == 0 && received == run.Iterations:
		return nil
	case due < max(run.window()/3, 1) && !x.idle:
		return nil
	}
	x.credited, x.crediting = received, true
	_, err := x.l.qp.PostSend(rdma.SendWR{
		ID: creditID, Op: rdma.WRWrite, Flags: rdma.Signaled, RKey: x.l.remote.key, RemoteAddr: x.l.remote.addr,
		Inline: binary.LittleEndian.AppendUint32(nil, uint32(received)),
	})
	return err
}

// window returns the number of Sends for which the receiver has room. perftest computes the same number.
func (o Options) window() uint64 {
	w := uint64(o.rxDepth())
	if o.Duration == 0 {
		w = min(w, o.Iterations)
	}
	return w
}

// underway returns how many of this end's Sends the peer has not reported as arrived. The peer writes its report into
// the memory of grant. A number that is impossible there is from an earlier size.
func (x *strand) underway() uint64 {
	said := binary.LittleEndian.Uint32(x.grant())
	if n := uint64(uint32(x.l.posted) - said); n < x.l.posted-x.granted {
		x.granted = x.l.posted - n
	}
	return x.l.posted - x.granted
}
