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

// partner is a run whose other end is a program of perftest: package perftest
// tells what is said, and in which order. What is measured and printed is the
// session's.
type partner struct {
	*session
	control *control
	version perftest.Version // of the peer
	page    int              // octets, the larger of both ends'
	line    int
	first   perftest.Dest // of our QP 0, when all are connected

	aborted atomic.Bool // we have ended the connections of the QPs
	asked   atomic.Bool // the client has said that it is done with the size

	// All QPs have one PD and share the regions: which of them is which is known
	// only by the order in which they were connected.
	out     *rdma.MR // what messages are sent from, or read to: a part for each QP
	in      *rdma.MR // what they come to, or are read from: likewise
	credits *rdma.MR // of send_bw: what the peer says of our Sends: creditLen for each QP
	strands []*strand
}

const (
	// creditLen is the length of a credit: octets, in the peer's byte order.
	creditLen = 4
	// ourPage and ourLine are what we say of this machine. They decide nothing
	// but where messages go.
	ourPage = 4096
	ourLine = 64
	// mostPage is the largest page of any machine that Linux runs on, and more
	// than any cache line.
	mostPage = 64 << 10
)

func (s *session) runPartner(ctx context.Context) (err error) {
	p := &partner{session: s}
	defer func() { err = p.why(err) }()
	if err := p.meet(ctx); err != nil {
		return err
	}
	if err := p.announceAll(ctx); err != nil {
		return err
	}
	p.describe()
	if err := p.printHeader(); err != nil {
		return err
	}
	if err := p.rounds(ctx); err != nil {
		return err
	}
	p.part(ctx)
	return p.printEnd()
}

// why is err, or what ended a QP's connection if the control connection was all
// that err knows of: the peer leaves when something has happened there.
func (p *partner) why(err error) error {
	if !errors.Is(err, errLeft) || p.aborted.Load() || p.interrupted() {
		return err
	}
	for _, x := range p.strands {
		if failed := x.qp.Err(); failed != nil {
			return x.named(failed)
		}
	}
	return err
}

// meet connects everything, and agrees on what there is to agree on before.
func (p *partner) meet(ctx context.Context) (err error) {
	var l *rdma.Listener
	if p.serves() {
		if l, err = p.adapter.Listen(ctx, p.at(), rdma.ListenConfig{}); err != nil {
			return err
		}
		defer l.Close()
		if err := p.printWaiting(l.Addr().Port()); err != nil {
			return err
		}
	}
	if p.control, err = p.newControl(); err != nil {
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
		if x.arrival, err = p.connect(ctx, l, x.qp, x.params()); err != nil {
			return err
		}
	}
	p.sort()
	return p.sync(ctx)
}

// sort numbers the QPs in the order in which the client has connected its own:
// it makes all connections at the same time.
func (p *partner) sort() {
	slices.SortStableFunc(p.strands, func(a, b *strand) int { return cmp.Compare(a.arrival, b.arrival) })
	for i, x := range p.strands {
		x.index = i
	}
}

// connect dials, or accepts from l, the next connection. The number is the
// client's of it, at the server.
func (p *partner) connect(ctx context.Context, l *rdma.Listener, qp *rdma.QP, params rdma.ConnParams) (number uint64, err error) {
	if !p.serves() {
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

// agree says who we are, and hears who the peer is.
func (p *partner) agree(ctx context.Context) error {
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
	if b, err = p.swap(ctx, perftest.AppendMTU(nil, p.port.MTU)); err != nil {
		return err
	}
	return perftest.CheckMTU(b)
}

// sync is a Dest each way that only says that its sender has come so far. It is
// that of QP 0, once there is one.
func (p *partner) sync(ctx context.Context) error {
	_, err := p.announce(ctx, p.first)
	return err
}

// announce tells the peer of one Dest, and hears its.
func (p *partner) announce(ctx context.Context, d perftest.Dest) (perftest.Dest, error) {
	b, err := p.swap(ctx, d.Append(nil, p.version))
	if err != nil {
		return perftest.Dest{}, err
	}
	return perftest.ParseDest(b, p.version)
}

// announceAll tells the peer where the memory of all QPs is. Each is told twice,
// with QP 0 once more in between, before, or behind.
func (p *partner) announceAll(ctx context.Context) error {
	every := p.strands
	first := every[:1]
	order := [][]*strand{every, every, first}
	switch {
	case p.Test.op() == rdmaSend:
		order = [][]*strand{every, first, every}
	case p.Test.Latency():
		order = [][]*strand{first, every, every, first}
	}
	for _, some := range order {
		for _, x := range some {
			d, err := p.announce(ctx, x.dest())
			if err != nil {
				return err
			}
			x.theirs = d
		}
	}
	p.first = p.strands[0].dest()
	return nil
}

// swap sends one message on the control connection and hears one. The client
// begins.
func (p *partner) swap(ctx context.Context, mine []byte) (theirs []byte, err error) {
	if p.serves() {
		if theirs, err = p.control.hear(ctx); err == nil {
			err = p.control.say(mine)
		}
		return theirs, err
	}
	if err := p.control.say(mine); err != nil {
		return nil, err
	}
	// By the clock, the server may be that much behind.
	ctx, cancel := context.WithTimeoutCause(ctx, stalled+p.Duration, errMute)
	defer cancel()
	return p.control.hear(ctx)
}

var errMute = fmt.Errorf("the server has not answered for %v: is it the same test, with the same options?", stalled)

// swapReports tells the peer what we have measured, and hears what it has.
func (p *partner) swapReports(ctx context.Context, b Bandwidth) (theirs perftest.Report, err error) {
	mine := perftest.Report{Size: uint64(b.Size), Iterations: b.Iterations, Peak: b.PeakGbps * p.unit(), Average: b.Gbps * p.unit(), Mpps: b.Mpps}
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

// reported is what a peer's report says. It has no time; the message rate and
// the number of messages do.
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

// describe adds what the connections say.
func (p *partner) describe() {
	p.describeConn(p.strands[0].qp.Conn())
	i := &p.result.Info
	i.Perftest = p.version.Text
	for _, x := range p.strands {
		c := x.qp.Conn()
		i.Addresses = append(i.Addresses, Ends{c.Local.String(), x.qp.Number(), c.Remote.String(), x.theirs.QPN})
	}
}

// part closes the connections when all has been said. How they end is of no
// interest any more: perftest destroys QPs that are connected.
func (p *partner) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	gone := make(chan struct{})
	for _, x := range p.strands {
		go func() {
			_ = x.qp.Disconnect(ctx)
			gone <- struct{}{}
		}()
	}
	for range p.strands {
		<-gone
	}
	_ = p.control.qp.Disconnect(ctx)
}

// named says which QP an error is of, if there are several.
func (x *strand) named(err error) error {
	if err != nil && len(x.strands) > 1 {
		return fmt.Errorf("QP %d: %w", x.index+1, err)
	}
	return err
}

// stalled is how long the peer may be silent in the middle of a test. perftest
// has the same.
const stalled = time.Minute
