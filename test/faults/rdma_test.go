package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

const (
	writeLen = 64 << 10 // octets of each Write
	writesUp = 32       // outstanding Writes
)

// writer is one end of an RDMA connection. It writes all of its memory into the memory of the other end, and then sends
// a Send.
type writer struct {
	*rig
	seed     octets.Pattern
	adapter  *rdma.Adapter
	ep       *rdma.Endpoint // with one CQ, and a region for the end's receives
	qp       *rdma.QP       // of ep
	src, dst *rdma.MR
	writes   int  // how many to post; at first, all of src
	told     bool // the other end's Send has arrived
}

// newWriter makes an end with n octets to write, and as much memory to receive.
func (r *rig) newWriter(side pair.Side, n int) *writer {
	r.Helper()
	w := &writer{rig: r, seed: octets.Pattern(10 + side), writes: n / writeLen}
	r.in(side, func() (err error) {
		w.adapter, err = rdma.Open(rdma.Config{Ports: []string{r.Ends[side].Name}, RegionHeap: uint64(2*n + 1<<20), NoControl: true, Partial: rdma.PartialRefused})
		return err
	})
	w.closes(w.adapter.Close)
	var err error
	w.ep, err = w.adapter.CreateEndpoint(rdma.EndpointConfig{OneCQ: true, Size: 64, QP: rdma.QPConfig{SendDepth: 2 * writesUp, RecvDepth: 4}})
	r.Must(err)
	w.closes(w.ep.Close)
	for _, m := range []struct {
		mr     **rdma.MR
		n      int
		access rdma.Access
	}{{&w.src, n, 0}, {&w.dst, n, rdma.LocalWrite | rdma.RemoteWrite}} {
		*m.mr, err = w.ep.PD.AllocMR(m.n, m.access)
		r.Must(err)
		w.closes((*m.mr).Close)
	}
	w.qp = w.ep.QP
	w.closes(w.qp.Close) // before the regions that the peer writes to
	w.seed.Fill(w.src.Bytes(), 0)
	_, err = w.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{w.ep.MR.SGE(0, 64)}})
	r.Must(err)
	return w
}

// closes registers f, to be called when the test ends, before what was made earlier is closed.
func (w *writer) closes(f func() error) { w.Cleanup(func() { w.Check(f()) }) }

// newWriters makes both ends and connects them.
func (r *rig) newWriters(n int, v6 bool, p rdma.ConnParams) (a, b *writer) {
	r.Helper()
	a, b = r.newWriter(ours, n), r.newWriter(theirs, n)
	host := r.Ends[theirs].V4.Addr().String()
	if v6 {
		host = r.Ends[theirs].V6.Addr().String()
	}
	l, err := b.adapter.Listen(r.Ctx(), net.JoinHostPort(host, "0"), rdma.ListenConfig{})
	r.Must(err)
	defer l.Close()
	dialled := make(chan error, 1)
	go func() { dialled <- a.qp.Dial(r.Ctx(), l.Addr().String(), p) }()
	req, err := l.Accept(r.Ctx())
	r.Must(err)
	r.Must(req.Accept(r.Ctx(), b.qp, p))
	r.Must(<-dialled)
	if got := a.qp.Conn().CRC; got == p.NoCRC {
		r.Fatalf("the connection has CRCs: %v", got)
	}
	return a, b
}

// write posts the Writes, and waits until the other end has written, too. It returns early if a work request fails.
func (w *writer) write(ctx context.Context, to *writer) error {
	posted, done := 0, 0
	var some [16]rdma.Completion
	for done < w.writes+1 || !w.told {
		for posted < w.writes+1 && posted-done < writesUp {
			if _, err := w.qp.PostSend(w.request(posted, to)); err != nil {
				return err
			}
			posted++
		}
		if err := w.ep.SendCQ.Wait(ctx); err != nil {
			return err
		}
		for _, c := range some[:w.ep.SendCQ.Poll(some[:])] {
			switch {
			case c.Status != rdma.Success:
				return fmt.Errorf("%+v: %w", c, errors.Join(w.qp.Err(), errFailed))
			case c.Op == rdma.WCRecv:
				w.told = true
			default:
				done++
			}
		}
	}
	return nil
}

var errFailed = errors.New("a work request has failed")

// request returns the i-th work request: a Write, or the Send after all of them.
func (w *writer) request(i int, to *writer) rdma.SendWR {
	if i == w.writes {
		return rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, SGL: []rdma.SGE{w.src.SGE(0, 64)}}
	}
	at := i * writeLen
	return rdma.SendWR{
		Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{w.src.SGE(at, writeLen)},
		RKey: to.dst.RKey(), RemoteAddr: to.dst.Addr() + uint64(at),
	}
}

// exchange runs write at both ends.
func exchange(a, b *writer) (errA, errB error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	other := make(chan error, 1)
	go func() { other <- b.write(ctx, a) }()
	errA = a.write(ctx, b)
	return errA, <-other
}

// retransmits returns how many segments an end has retransmitted.
func (w *writer) retransmits() uint64 {
	w.Helper()
	s, err := w.qp.TCPStats(w.Ctx())
	w.Must(err)
	w.Logf("%+v", s)
	return s.Retransmits
}

// part closes the connection normally.
func (w *writer) part(other *writer) {
	w.Helper()
	w.Must(w.qp.Disconnect(w.Ctx()))
	w.Wait(other.qp.Done(), "the other end")
	w.Must(errors.Join(w.qp.Err(), other.qp.Err()))
}

// got checks that an end's memory contains what the other end wrote.
func (w *writer) got(from *writer) {
	w.Helper()
	if i := from.seed.Differs(w.dst.Bytes(), 0); i >= 0 {
		w.Errorf("octet %d that was written is wrong", i)
	}
	if !bytes.Equal(w.ep.MR.Bytes(), from.src.Bytes()[:64]) {
		w.Error("the Send is wrong")
	}
}

// TestRDMA lets both ends write 64 MiB into the other's memory at the same time, with the faults of weather.
func TestRDMA(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) {
			r := newRig(t, Config{Seed: 7})
			a, b := r.newWriters(volume, v6, rdma.ConnParams{})
			r.both(weather)
			errA, errB := exchange(a, b)
			r.Must(errors.Join(errA, errB))
			for side, w := range []*writer{a, b} {
				t := r.tally(pair.Side(side))
				r.Log(t)
				if again := w.retransmits(); min(again, t.Dropped, t.Spoilt, t.Twice, t.Late) < enough {
					r.Errorf("side %v: %d segments sent again; %v: want %d or more of each", pair.Side(side), again, t, enough)
				}
			}
			a.part(b)
			a.got(b)
			b.got(a)
		})
	}
}

// TestRDMAPathNarrows checks FPDUs that were made for a wider path. The sender divides them into smaller segments, with
// or without a report of the path. The other end must receive them.
func TestRDMAPathNarrows(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			r := newRig(t, Config{Routed: !silent})
			a, b := r.newWriters(volume, false, rdma.ConnParams{})
			r.Must(r.Set(ours, drizzle))
			b.writes = 0 // b only answers
			over := make(chan error, 1)
			go func() {
				errA, errB := exchange(a, b)
				over <- errors.Join(errA, errB)
			}()
			r.Eventually("the Writes run", func() bool { return r.tally(ours).Segments > 2000 })
			if silent {
				r.Must(r.Set(ours, Plan{Drop: drizzle.Drop, Largest: 1300}))
			} else {
				r.Must(r.Narrow(1000))
			}
			r.Must(<-over)
			s, err := a.qp.TCPStats(r.Ctx())
			r.Must(err)
			r.Logf("%v; %+v", r.tally(ours), s)
			if silent && (s.BlackHoles == 0 || r.tally(ours).Vanished < timeouts) || !silent && s.TooBigs == 0 {
				t.Errorf("%d black holes, %d reports; %v", s.BlackHoles, s.TooBigs, r.tally(ours))
			}
			a.part(b)
			b.got(a)
		})
	}
}

// TestRDMASwapped exchanges two words of one segment. TCP's checksum does not detect that, but the CRC does. The
// connection ends with a Terminate, nothing wrong has been placed, and no completion says that the Writes have arrived.
func TestRDMASwapped(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t, Config{Seed: seed})
			a, b := r.newWriters(volume/8, false, rdma.ConnParams{})
			r.Must(r.Set(ours, Plan{Swap: Percent(0.2), Swaps: 1}))
			errA, errB := exchange(a, b)
			r.Wait(a.qp.Done(), "the end of the one side")
			r.Wait(b.qp.Done(), "the end of the other side")
			for _, err := range []error{errA, errB, a.qp.Err(), b.qp.Err()} {
				if err == nil || !strings.Contains(err.Error(), "CRC") {
					t.Errorf("the error is %v, want a CRC error", err)
				}
			}
			if n := r.tally(ours).Swapped; n != 1 {
				t.Errorf("%d segments were changed", n)
			}
			if b.told {
				t.Error("the other end was told that all is written")
			}
			for i, got := range b.dst.Bytes() {
				if got != 0 && got != a.src.Bytes()[i] {
					t.Fatalf("octet %d is wrong: a spoilt FPDU was placed", i)
				}
			}
		})
	}
}

// TestRDMASwappedWithoutCRC makes the same change on a connection without the CRC. It is not detected, so the CRC is
// what detects it.
func TestRDMASwappedWithoutCRC(t *testing.T) {
	r := newRig(t, Config{Seed: 1})
	a, b := r.newWriters(volume/8, false, rdma.ConnParams{NoCRC: true})
	r.Must(r.Set(ours, Plan{Swap: Percent(0.2), Swaps: 1}))
	errA, errB := exchange(a, b)
	r.Must(errors.Join(errA, errB))
	if n := r.tally(ours).Swapped; n != 1 || !b.told {
		t.Fatalf("%d segments were changed; told: %v", n, b.told)
	}
	if a.seed.Differs(b.dst.Bytes(), 0) < 0 {
		t.Error("nothing is wrong in memory")
	}
	a.part(b)
}
