package rdma

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The flood uses these parts of the lent memory, and as many octets of the attacker's
// memory.
const (
	shot    = 3000 // octets of a Write or a Read of a peer, of several segments
	inbox   = 1000 // octets of a receive
	lentLen = 2*shot + inbox

	mark   = 0x5a // value of the octets that the flood places
	secret = 0xa5 // value of the memory's octets after the revocation
)

// flood is a connection whose ends use an STag of the target's end without pause, until a
// use is refused. A flood has one connection after the other.
type flood struct {
	pds         [2]*PD // of the attacker and of the target
	send, recv  [2]*CQ
	qps         [2]*QP
	mr          *MR // memory of the attacker: octets to write, octets of Reads, octets of the target's Writes
	stag        STag
	local       bool            // the target's own requests use the STag, too
	receives    atomic.Int64    // receives that the target has posted and the attacker has not used
	hits        [2]atomic.Int64 // requests of each end that have succeeded
	failed      atomic.Pointer[error]
	unconnected error // of connect
	running     sync.WaitGroup
	stop        atomic.Bool
}

func newFlood(x, y *end) *flood {
	x.r.Helper()
	f := &flood{pds: [2]*PD{x.pd, y.pd}}
	var err error
	for i, a := range []*Adapter{x.a, y.a} {
		f.send[i], err = a.CreateCQ(512)
		x.r.Must(err)
		f.recv[i], err = a.CreateCQ(512)
		x.r.Must(err)
	}
	f.mr, err = x.pd.AllocMR(3*shot, all)
	x.r.Must(err)
	return f
}

// connect gives the flood another connection, and drops the one before.
func (f *flood) connect(ctx context.Context, l *Listener) (err error) {
	if err := f.close(); err != nil {
		return err
	}
	for i, pd := range f.pds {
		c := QPConfig{SendCQ: f.send[i], RecvCQ: f.recv[i], SendDepth: 64, RecvDepth: 64}
		if f.qps[i], err = pd.CreateQP(c); err != nil {
			return err
		}
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			err = req.Accept(ctx, f.qps[1], ConnParams{})
		}
		accepted <- err
	}()
	return errors.Join(f.qps[0].Dial(ctx, l.Addr().String(), ConnParams{}), <-accepted)
}

func (f *flood) close() (err error) {
	for i, qp := range f.qps {
		if qp != nil {
			qp.Abort() // a reset leaves no TIME-WAIT
			err = errors.Join(err, qp.Close())
		}
		var some [64]Completion
		for f.send[i].Poll(some[:])+f.recv[i].Poll(some[:]) != 0 {
			continue
		}
	}
	return err
}

// begin starts the flood over an STag of the target.
func (f *flood) begin(stag STag, local bool) {
	f.stag, f.local = stag, local
	for i := range f.mr.Bytes() {
		f.mr.Bytes()[i] = mark
	}
	f.stop.Store(false)
	f.receives.Store(0)
	f.hits[0].Store(0)
	f.hits[1].Store(0)
	f.running.Go(func() { f.run(0, f.attack) })
	if local {
		f.running.Go(func() { f.run(1, f.use) })
	}
}

// run posts by one end until its connection fails.
func (f *flood) run(side int, post func() error) {
	qp := f.qps[side]
	var some [64]Completion
	for qp.State() == RTS && !f.stop.Load() {
		if err := post(); err != nil && !errors.Is(err, ErrQueueFull) && qp.State() == RTS {
			f.failed.CompareAndSwap(nil, &err)
			return
		}
		n := f.send[side].Poll(some[:])
		for _, c := range some[:n] {
			if c.Status == Success {
				f.hits[side].Add(1)
			}
		}
		f.recv[side].Poll(some[:])
		runtime.Gosched()
	}
}

// attack posts a Write, a Read and, if the target has a receive, a Send.
func (f *flood) attack() error {
	qp := f.qps[0]
	_, err := qp.PostSend(
		SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{f.mr.SGE(0, shot)}, RKey: f.stag},
		SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{f.mr.SGE(shot, shot)}, RKey: f.stag})
	if err == nil && f.receives.Load() > 0 {
		f.receives.Add(-1)
		_, err = qp.PostSend(SendWR{Op: WRSend, SGL: []SGE{f.mr.SGE(0, inbox)}})
		if err != nil {
			f.receives.Add(1)
		}
	}
	return err
}

// use posts a receive into the memory, a Write from it and a Read into it.
func (f *flood) use() error {
	qp := f.qps[1]
	if f.receives.Load() < 32 {
		if _, err := qp.PostRecv(RecvWR{SGL: []SGE{{LKey: f.stag, Addr: shot, Length: inbox}}}); err != nil {
			return err
		}
		f.receives.Add(1)
	}
	_, err := qp.PostSend(
		SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{{LKey: f.stag, Length: shot}}, RKey: f.mr.RKey(), RemoteAddr: 2 * shot},
		SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{{LKey: f.stag, Addr: shot + inbox, Length: shot}}, RKey: f.mr.RKey()})
	return err
}

// hot reports whether both ends use the STag.
func (f *flood) hot() bool {
	return f.hits[0].Load() >= 4 && (!f.local || f.hits[1].Load() >= 2)
}

// over reports whether the target has refused a request, or the flood has failed.
func (f *flood) over() bool {
	return f.qps[1].State() != RTS || f.failed.Load() != nil
}

// siege lends memory of y to one flood after the other, and takes it back over the
// connection from x to y, which is not flooded.
type siege struct {
	*rig
	x, y *end

	mem    []byte // outside of Go's heap
	region *MR    // lent in this round
	other  *MR    // over other memory, to bind the window to
	mw     *MW

	idle, ready chan *flood
}

// A take-over waits for the kernel most of its time, so several run at a time.
const floods, connectors = 16, 6

func newSiege(r *rig) *siege {
	r.Helper()
	s := &siege{rig: r, mem: outsideHeap(r, lentLen), idle: make(chan *flood, floods), ready: make(chan *flood, floods)}
	s.x, s.y = r.connect(wants{})
	s.x.hello()
	s.other, s.mw = s.y.lend(LocalWrite|MWBind), s.y.window(MWType1)
	for range floods {
		s.idle <- newFlood(s.x, s.y)
	}
	var connecting sync.WaitGroup
	for range connectors {
		l := r.listen(r.b)
		connecting.Go(func() { s.connectAll(l) })
	}
	r.Cleanup(func() {
		close(s.idle)
		connecting.Wait()
	})
	return s
}

// connectAll connects idle floods until there are no more of them.
func (s *siege) connectAll(l *Listener) {
	defer l.Close()
	for f := range s.idle {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		f.unconnected = f.connect(ctx, l)
		cancel()
		s.ready <- f
	}
}

// flooded lends the memory, and waits until a flood uses it.
func (s *siege) flooded(c *takeBack) *flood {
	s.Helper()
	f := <-s.ready
	s.Must(f.unconnected)
	clear(s.mem)
	f.begin(c.lend(s), c.local)
	s.Eventually("the flood uses the memory", func() bool { return f.hot() || f.over() })
	if !f.hot() {
		s.Fatalf("the flood has ended: %v", f.qps[1].Err())
	}
	return f
}

// untouched writes to the memory that was taken back, waits until the flood is refused,
// and demands that nobody else has used the memory.
func (s *siege) untouched(f *flood) {
	s.Helper()
	for i := range s.mem {
		s.mem[i] = secret
	}
	for end := time.Now().Add(patience); !f.over(); runtime.Gosched() {
		if time.Now().After(end) {
			s.Fatal("the flood is not refused")
		}
	}
	f.stop.Store(true)
	f.running.Wait()
	if err := f.failed.Load(); err != nil {
		s.Fatal(*err)
	}
	var qe *QPError
	if err := f.qps[1].Err(); !errors.As(err, &qe) || qe.Remote {
		s.Errorf("the target has not refused a request: %v", err)
	}
	for _, qp := range f.qps {
		qp.Abort()
		s.Wait(qp.Done(), "the end of the flooded connection")
	}
	if n := lentLen - bytes.Count(s.mem[:lentLen], []byte{secret}); n != 0 {
		s.Errorf("%d octets have changed after the memory was taken back", n)
	}
	if n := bytes.Count(f.mr.Bytes(), []byte{secret}); n != 0 {
		s.Errorf("the peer has got %d octets of the memory after it was taken back", n)
	}
	s.idle <- f
}
