package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perftest"
	"github.com/stag-rdma/stag/rdma"
)

// perftestPeer implements peer if the other end is a program of perftest. Package perftest describes the messages and
// their order.
type perftestPeer struct {
	run     *runner
	control *control
	version perftest.Version // version of the peer's exchange
	page    int              // page size and cache line in octets; the larger value of both ends
	line    int
	first   perftest.Dest // Dest of this end's QP 0, after all QPs are connected
	last    Bandwidth     // result for this end's messages of the last size

	asked atomic.Bool // the client has reported that it is done with the size

	// All QPs share one PD and the regions, because the server cannot tell from a connection alone to which QP it
	// belongs. Only the order of the connections tells.
	out     *rdma.MR // memory that messages are sent from, or read into: a part for each QP
	in      *rdma.MR // memory in which messages arrive, or which the peer reads: a part for each QP
	credits *rdma.MR // memory into which the peer writes how many of this end's Sends it has received, for send_bw: creditLen octets for each QP
	strands []*strand
}

const (
	// creditLen is the length of a credit in octets. A credit has the byte order of the peer.
	creditLen = 4
	// ourPage and ourLine are the page size and the cache line that this end announces. They only decide where
	// messages are in memory.
	ourPage = 4096
	ourLine = 64
	// mostPage is the largest page size of any machine that Linux runs on, and larger than any cache line.
	mostPage = 64 << 10
)

// why returns the cause of err. If err is only about the control connection, why returns the error that ended a QP's
// connection, because the peer closes the control connection after such an error. In every other case why returns
// err.
func (p *perftestPeer) why(err error) error {
	if !errors.Is(err, errLeft) || p.run.aborted.Load() || p.run.interrupted() {
		return err
	}
	for _, x := range p.strands {
		if failed := x.l.qp.Err(); failed != nil {
			return x.l.named(failed)
		}
	}
	return err
}

// meet makes the control connection, exchanges the parameters, and then connects all QPs.
func (p *perftestPeer) meet(ctx context.Context) (err error) {
	var l *rdma.Listener
	if p.run.serves() {
		if l, err = p.run.adapter.Listen(ctx, p.run.at(), rdma.ListenConfig{}); err != nil {
			return err
		}
		defer l.Close()
		if err := p.run.printWaiting(l.Addr().Port()); err != nil {
			return err
		}
	}
	if p.control, err = newControl(p.run.adapter); err != nil {
		return err
	}
	if _, err := p.connect(ctx, l, p.control.qp, rdma.ConnParams{}); err != nil {
		return err
	}
	if err := p.agree(ctx); err != nil {
		return err
	}
	if err := p.makeStrands(); err != nil {
		return err
	}
	if err := p.sync(ctx); err != nil {
		return err
	}
	for _, x := range p.strands {
		if x.arrival, err = p.connect(ctx, l, x.l.qp, x.params()); err != nil {
			return err
		}
	}
	p.sort()
	if err := p.sync(ctx); err != nil {
		return err
	}
	p.run.result.Info.Perftest = p.version.Text
	return p.announceAll(ctx)
}

// sort numbers the QPs in the order in which the client numbers them. The client makes all connections at the same
// time, so they may arrive in another order.
func (p *perftestPeer) sort() {
	slices.SortStableFunc(p.strands, func(a, b *strand) int { return cmp.Compare(a.arrival, b.arrival) })
	for i, x := range p.strands {
		p.run.lanes[i] = x.l
		x.place(i)
	}
}

// connect dials the next connection, or accepts it from l. At the server it returns the number that the client gave the
// connection.
func (p *perftestPeer) connect(ctx context.Context, l *rdma.Listener, qp *rdma.QP, params rdma.ConnParams) (number uint64, err error) {
	if !p.run.serves() {
		return 0, p.dial(ctx, qp, params)
	}
	r, err := l.Accept(ctx)
	if err != nil {
		return 0, err
	}
	if len(r.PrivateData()) > 0 {
		return 0, errors.Join(errNotPerftest, r.Reject(nil))
	}
	return r.Peer().Number, r.Accept(ctx, qp, params)
}

var errNotPerftest = errors.New("the client is not perftest: is it stag perf without --perftest?")

// agree exchanges versions and the other parameters with the peer.
func (p *perftestPeer) agree(ctx context.Context) error {
	b, err := p.swap(ctx, perftest.AppendVersion(nil))
	if err != nil {
		return err
	}
	if p.version, err = perftest.ParseVersion(b); err != nil {
		return err
	}
	for _, n := range []struct {
		what string
		ours int
		dst  *int
	}{{"page size", ourPage, &p.page}, {"cache line", ourLine, &p.line}} {
		if b, err = p.swap(ctx, perftest.AppendNumber(nil, n.ours)); err != nil {
			return err
		}
		theirs, err := perftest.ParseNumber(b, n.what, mostPage)
		if err != nil {
			return err
		}
		*n.dst = max(n.ours, theirs)
	}
	if b, err = p.swap(ctx, perftest.AppendMTU(nil, p.run.port.MTU)); err != nil {
		return err
	}
	return perftest.CheckMTU(b)
}

// sync exchanges a Dest with the peer, only to show that both ends have reached this step. The Dest is that of QP 0, or
// zero before QP 0 is connected.
func (p *perftestPeer) sync(ctx context.Context) error {
	_, err := p.announce(ctx, p.first)
	return err
}

// announce sends one Dest to the peer, and returns the peer's.
func (p *perftestPeer) announce(ctx context.Context, d perftest.Dest) (perftest.Dest, error) {
	b, err := p.swap(ctx, d.Append(nil, p.version))
	if err != nil {
		return perftest.Dest{}, err
	}
	return perftest.ParseDest(b, p.version)
}

// announceAll sends the Dests of all QPs twice, so that the peer learns where the memory of each QP is. The Dest of QP 0
// is sent once more: before, between or after these, depending on the test.
func (p *perftestPeer) announceAll(ctx context.Context) error {
	every := p.strands
	first := every[:1]
	order := [][]*strand{every, every, first}
	switch {
	case p.run.Test.op() == rdmaSend:
		order = [][]*strand{every, first, every}
	case p.run.Test.Latency():
		order = [][]*strand{first, every, every, first}
	}
	for _, some := range order {
		for _, x := range some {
			d, err := p.announce(ctx, x.dest())
			if err != nil {
				return err
			}
			x.hear(d)
		}
	}
	p.first = p.strands[0].dest()
	return nil
}

// swap sends one message on the control connection and receives one. The client sends first.
func (p *perftestPeer) swap(ctx context.Context, mine []byte) (theirs []byte, err error) {
	if p.run.serves() {
		if theirs, err = p.control.hear(ctx); err == nil {
			err = p.control.say(mine)
		}
		return theirs, err
	}
	if err := p.control.say(mine); err != nil {
		return nil, err
	}
	// In a test with a duration, the server's answer may take longer by that duration.
	ctx, cancel := context.WithTimeoutCause(ctx, stalled+p.run.Duration, errMute)
	defer cancel()
	return p.control.hear(ctx)
}

var errMute = fmt.Errorf("the server has not answered for %v: is it the same test, with the same options?", stalled)

// swapReports sends the peer this end's result, and returns the peer's.
func (p *perftestPeer) swapReports(ctx context.Context, b Bandwidth) (theirs perftest.Report, err error) {
	mine := perftest.Report{Size: uint64(b.Size), Iterations: b.Iterations, Peak: b.PeakGbps * p.run.unit(), Average: b.Gbps * p.run.unit(), Mpps: b.Mpps}
	for i := range perftest.Figures {
		figure, err := p.swap(ctx, mine.Figure(i))
		if err != nil {
			return theirs, err
		}
		if err := theirs.SetFigure(i, figure); err != nil {
			return theirs, err
		}
	}
	return theirs, nil
}

// reported converts a peer's report. It computes the time from the message rate and the number of messages.
func reported(r perftest.Report) (Bandwidth, error) {
	if r.Size < 1 || r.Size > MaxSize || r.Iterations < 1 || r.Iterations > maxIterations {
		return Bandwidth{}, fmt.Errorf("the peer reports %d messages of %d octets: is it perftest, and the same test?", r.Iterations, r.Size)
	}
	b := Bandwidth{Size: int(r.Size), Iterations: r.Iterations, PeakGbps: r.PeakGbps(), Gbps: r.Gbps(), Mpps: r.Mpps}
	if r.Mpps > 0 {
		b.Seconds = float64(r.Iterations) / (r.Mpps * 1e6)
	}
	return b, nil
}

// part closes the connections after the exchange. It ignores their errors, because perftest destroys QPs that are still
// connected.
func (p *perftestPeer) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	gone := make(chan struct{})
	for _, x := range p.strands {
		go func() {
			_ = x.l.qp.Disconnect(ctx)
			gone <- struct{}{}
		}()
	}
	for range p.strands {
		<-gone
	}
	_ = p.control.qp.Disconnect(ctx)
}

// stalled is how long the peer may be silent in the middle of a test. perftest has the same limit.
const stalled = time.Minute
