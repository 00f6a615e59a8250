package iscsi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/test/rig"
)

// relay carries the octets of connections between initiators and a target.
type relay struct {
	t  *testing.T
	l  net.Listener
	to atomic.Pointer[string]

	carried atomic.Int64 // octets of initiators

	mu    sync.Mutex
	links []*link
}

// link is a connection through a relay.
type link struct {
	near, far net.Conn
	mute      atomic.Bool // nothing of the target arrives
	stranded  atomic.Bool // the target does not learn that the initiator is gone
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	r := &relay{t: t}
	r.to.Store(&to)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.l = l
	var wg sync.WaitGroup
	wg.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			wg.Go(func() { r.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut()
		wg.Wait()
	})
	return r
}

func (r *relay) carry(near net.Conn) {
	far, err := net.Dial("tcp", *r.to.Load())
	if err != nil {
		near.Close()
		return
	}
	x := &link{near: near, far: far}
	r.mu.Lock()
	r.links = append(r.links, x)
	r.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(far, io.TeeReader(near, counter{&r.carried}))
		if !x.stranded.Load() {
			far.Close()
		}
	}()
	b := make([]byte, 64<<10)
	for n, err := far.Read(b); err == nil; n, err = far.Read(b) {
		if !x.mute.Load() {
			near.Write(b[:n])
		}
	}
	near.Close()
	<-done
}

// counter counts octets.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// mute keeps what the target sends over the present connections from arriving.
func (r *relay) mute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.links {
		x.mute.Store(true)
	}
}

// strand ends the present connections for the initiators. The target does not learn it.
func (r *relay) strand() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.links {
		x.stranded.Store(true)
		x.near.Close()
	}
}

// cut ends the present connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.links {
		x.near.Close()
		x.far.Close()
	}
	r.links = nil
}

// outage is a disk behind a relay, and the events of its session.
type outage struct {
	*relay
	d *iscsi.Disk

	mu     sync.Mutex
	events []iscsi.Event
}

func newOutage(t *testing.T, c iscsi.Config) *outage {
	t.Helper()
	s := serveOn(t, ram(t, 1<<20), nil)
	o := &outage{relay: newRelay(t, s.Addr().String())}
	c.Events = func(e iscsi.Event) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events = append(o.events, e)
	}
	var err error
	o.d, err = iscsi.Dial(context.Background(), "iscsi://"+o.l.Addr().String()+"/"+ownTarget+"/1", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rig.Check(t, o.d.Close()) })
	return o
}

// happened reports whether there was such an event.
func (o *outage) happened(k iscsi.EventKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.events, func(e iscsi.Event) bool { return e.Kind == k })
}

// TestSilentTarget: the target has got a write, a read and a COMPARE AND WRITE, and its
// answers do not arrive. The ping has no answer, and the session logs in again. The first
// two are repeated, and the third is not.
func TestSilentTarget(t *testing.T) {
	o := newOutage(t, iscsi.Config{Ping: 200 * time.Millisecond})
	o.mute()
	var wg sync.WaitGroup
	block := random(512, 1)
	wg.Go(func() {
		_, err := o.d.WriteAt(block, 4096)
		rig.Check(t, err)
	})
	wg.Go(func() {
		_, err := o.d.ReadAt(make([]byte, 512), 8192)
		rig.Check(t, err)
	})
	cdb := make([]byte, 16)
	cdb[0], cdb[13] = 0x89, 1
	if _, err := o.d.Session().Do(context.Background(), iscsi.Command{LUN: 1, CDB: cdb, Out: make([]byte, 1024)}); !errors.Is(err, iscsi.ErrUncertain) {
		t.Errorf("COMPARE AND WRITE: %v", err)
	}
	wg.Wait()
	got := make([]byte, 512)
	if _, err := o.d.ReadAt(got, 4096); err != nil || !slices.Equal(got, block) {
		t.Errorf("a read of the write: %v, equal %v", err, slices.Equal(got, block))
	}
	for _, k := range []iscsi.EventKind{iscsi.EventHeld, iscsi.EventUp, iscsi.EventAttention} {
		if !o.happened(k) {
			t.Errorf("no event %v", k)
		}
	}
}

// picky is a medium on which the reads of one block wait for the test.
type picky struct {
	unit.Backend
	asked, gate chan struct{}
}

// pickyBlock is the octet of that block.
const pickyBlock = 64 << 10

func (p picky) ReadAt(b []byte, off int64) (int, error) {
	if off == pickyBlock {
		close(p.asked)
		<-p.gate
	}
	return p.Backend.ReadAt(b, off)
}

// TestReplaySparesOthers: a session repeats a write to a target that ends old sessions by
// itself, and a command of another initiator to the same unit lives on.
func TestReplaySparesOthers(t *testing.T) {
	medium := picky{ram(t, 1<<20), make(chan struct{}), make(chan struct{})}
	s := serveOn(t, medium, nil)
	o := &outage{relay: newRelay(t, s.Addr().String())}
	d, err := iscsi.Dial(context.Background(), "iscsi://"+o.l.Addr().String()+"/"+ownTarget+"/1", iscsi.Config{Ping: 200 * time.Millisecond})
	rig.Must(t, err)
	defer func() { rig.Check(t, d.Close()) }()
	other, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
	rig.Must(t, err)
	defer func() { rig.Check(t, other.Close()) }()
	read := make(chan error)
	go func() {
		_, err := other.Session().Do(context.Background(), iscsi.Command{LUN: 1, CDB: []byte{0x28, 0, 0, 0, 0, pickyBlock / 512, 0, 0, 1, 0}, In: make([]byte, 512)})
		read <- err
	}()
	rig.Wait(t, medium.asked, "the other read reaches the medium")
	o.mute()
	_, err = d.WriteAt(random(512, 1), 4096)
	rig.Check(t, err)
	close(medium.gate)
	rig.Check(t, rig.Wait(t, read, "the other read"))
}

// TestUnknownUnit: nobody checks the unit of a session without a disk after the next login.
// A write whose answer did not arrive is not repeated, and an INQUIRY is.
func TestUnknownUnit(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	o := &outage{relay: newRelay(t, s.Addr().String())}
	x, err := iscsi.DialSession(context.Background(), "iscsi://"+o.l.Addr().String()+"/"+ownTarget+"/1", iscsi.Config{Ping: 200 * time.Millisecond})
	rig.Must(t, err)
	defer func() { rig.Check(t, x.Close()) }()
	rig.Must(t, ready(x))
	o.mute()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := x.Do(context.Background(), iscsi.Command{LUN: 1, CDB: []byte{0x12, 0, 0, 0, 96, 0}, In: make([]byte, 96)})
		rig.Check(t, err)
	})
	for _, cdb := range [][]byte{{0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0}, {0x42, 0, 0, 0, 0, 0, 0, 2, 0, 0}} {
		wg.Go(func() {
			_, err := x.Do(context.Background(), iscsi.Command{LUN: 1, CDB: cdb, Out: make([]byte, 512)})
			if !errors.Is(err, iscsi.ErrUncertain) {
				t.Errorf("command %#x: %v", cdb[0], err)
			}
		})
	}
	wg.Wait()
}

// TestOtherUnit: the new connection leads to a unit of another size. The session is lost.
func TestOtherUnit(t *testing.T) {
	o := newOutage(t, iscsi.Config{})
	other := serveOn(t, ram(t, 2<<20), nil).Addr().String()
	o.to.Store(&other)
	o.cut()
	if _, err := o.d.ReadAt(make([]byte, 512), 0); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a read: %v", err)
	}
	rig.Wait(t, o.d.Session().Done(), "the end of the session")
}

// TestRecoveryTimeout: nobody answers. The session is lost when the time is over.
func TestRecoveryTimeout(t *testing.T) {
	o := newOutage(t, iscsi.Config{RecoveryTimeout: 300 * time.Millisecond})
	rig.Check(t, o.l.Close())
	o.cut()
	if _, err := o.d.ReadAt(make([]byte, 512), 0); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a read: %v", err)
	}
	if !o.happened(iscsi.EventLost) {
		t.Error("no event lost")
	}
}

// TestCancelWithoutConnection: a command that had been sent, and one that has not, end when
// their context does, while the session has no connection. Close does not wait.
func TestCancelWithoutConnection(t *testing.T) {
	o := newOutage(t, iscsi.Config{})
	o.mute()
	ctx, cancel := context.WithCancel(context.Background())
	inquiry := iscsi.Command{LUN: 1, CDB: []byte{0x12, 0, 0, 0, 36, 0}, In: make([]byte, 36)}
	var wg sync.WaitGroup
	try := func() {
		c := inquiry
		c.In = make([]byte, 36)
		if _, err := o.d.Session().Do(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("a command: %v", err)
		}
	}
	wg.Go(try)
	time.Sleep(20 * time.Millisecond) // the command has left, in most runs
	rig.Check(t, o.l.Close())
	o.cut()
	rig.Eventually(t, "the session is held", func() bool { return o.happened(iscsi.EventHeld) })
	wg.Go(try)
	time.Sleep(20 * time.Millisecond)
	cancel()
	wg.Wait()
}
