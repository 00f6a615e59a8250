package iscsi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/test/rig"
)

// several is a disk over several paths, each through a relay and a portal of its own group.
type several struct {
	rig.Stage
	server *iscsi.Server
	disk   *backend.RAM
	relays []*relay
	scheme string // of the URLs
	d      *iscsi.Disk

	mu     sync.Mutex
	events []iscsi.Event
}

// newSeveral serves a disk at n portals, and dials it over n paths.
func newSeveral(t *testing.T, n int, c iscsi.Config, change func(c *iscsi.ServerConfig)) *several {
	t.Helper()
	s := &several{Stage: rig.On(t), disk: ram(t, 64<<20), scheme: "iscsi"}
	s.server = serveOn(t, s.disk, func(c *iscsi.ServerConfig) {
		for i := 1; i < n; i++ {
			c.Portals = append(c.Portals, iscsi.PortalConfig{Address: "127.0.0.1:0", Group: uint16(1 + i)})
		}
		if change != nil {
			change(c)
		}
		if strings.HasPrefix(c.Address, "iser://") {
			s.scheme = "iser"
		}
	})
	for _, a := range s.server.Addrs() {
		s.relays = append(s.relays, newRelay(t, a.String()))
	}
	c.Events = func(e iscsi.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}
	var err error
	s.d, err = iscsi.DialMultipath(s.Ctx(), s.urls(), c)
	s.Must(err)
	t.Cleanup(func() { s.Check(s.d.Close()) })
	return s
}

func (s *several) urls() (all []string) {
	for _, r := range s.relays {
		all = append(all, s.scheme+strings.TrimPrefix(r.url(), "iscsi"))
	}
	return all
}

// url is the URL of the disk through the relay.
func (r *relay) url() string { return fmt.Sprintf("iscsi://%s/%s/1", r.l.Addr(), ownTarget) }

// count returns how many events of a kind there were.
func (s *several) count(k iscsi.EventKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// states returns the states of the paths.
func (s *several) states() (all []iscsi.PathState) {
	for _, p := range s.d.Paths() {
		all = append(all, p.State)
	}
	return all
}

// become waits for states of the paths.
func (s *several) become(want ...iscsi.PathState) {
	s.Helper()
	s.Eventually(fmt.Sprint("paths ", want), func() bool { return slices.Equal(s.states(), want) })
}

var policies = []iscsi.Policy{iscsi.RoundRobin, iscsi.LeastQueueDepth, iscsi.FailOver}

// TestMultipathPatterns: what is written over several paths is what is there, and each
// policy uses the paths that it should.
func TestMultipathPatterns(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			s := newSeveral(t, 3, iscsi.Config{Policy: policy}, nil)
			patterns(t, s.d, s.disk)
			l := newLoad(t, s.d, 32, 8<<10)
			l.run(&s.Stage, func() bool { return l.done.Load() > 2000 })
			s.Must(l.q.Close())
			for i, r := range s.relays {
				used := r.carried.Load() > 1<<20
				if want := policy != iscsi.FailOver || i == 0; used != want {
					t.Errorf("path %d carried %d octets", i, r.carried.Load())
				}
			}
			if s.d.Session() != nil || s.d.Err() != nil {
				t.Errorf("session %v, error %v", s.d.Session(), s.d.Err())
			}
		})
	}
}

// deaths is how often paths die in a test.
func deaths() int {
	if os.Getenv("STAG_LONG") != "" {
		return 200
	}
	return 30
}

// TestPathDeaths: paths die one after the other, and at times all of them, under verified
// writes and reads. Each IO completes once, and no octet is wrong.
func TestPathDeaths(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			s := newSeveral(t, 2, iscsi.Config{Policy: policy}, nil)
			n := 0
			outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), deaths(), func() {
				n++
				s.relays[n%2].cut()
				if n%10 == 0 {
					s.relays[1-n%2].cut()
				}
			})
			if down := s.count(iscsi.EventPathDown); down < deaths()/2 {
				t.Errorf("%d paths died", down)
			}
			s.become(bothWork(policy)...)
		})
	}
}

// bothWork is the state of two paths that work.
func bothWork(p iscsi.Policy) []iscsi.PathState {
	if p == iscsi.FailOver {
		return []iscsi.PathState{iscsi.PathActive, iscsi.PathReady}
	}
	return []iscsi.PathState{iscsi.PathActive, iscsi.PathActive}
}

// TestSilentPath: nothing of the target arrives over one path. Its commands go over the
// other path when the ping has no answer.
func TestSilentPath(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{Ping: 150 * time.Millisecond}, nil)
	outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), 3, func() {
		s.become(bothWork(iscsi.RoundRobin)...)
		s.relays[1].mute()
	})
	s.Eventually("the last death is told", func() bool { return s.count(iscsi.EventPathDown) == 3 })
}

// TestAllPathsDown: commands wait while there is no path, and go on when one is back.
func TestAllPathsDown(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{}, nil)
	nowhere := "127.0.0.1:1"
	back := s.server.Addr().String()
	outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), 2, func() {
		for _, r := range s.relays {
			r.to.Store(&nowhere)
			r.cut()
		}
		s.become(iscsi.PathDown, iscsi.PathDown)
		s.relays[0].to.Store(&back)
	})
	if s.count(iscsi.EventHeld) != 2 || s.count(iscsi.EventUp) != 2 {
		t.Errorf("events %v", s.events)
	}
}

// TestPathsLost: no path comes back in time. Every command completes once with
// ErrSessionLost, with a full queue too.
func TestPathsLost(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{RecoveryTimeout: 300 * time.Millisecond}, nil)
	q, err := s.d.Queue(64)
	s.Must(err)
	for _, r := range s.relays {
		r.mute()
	}
	var ios []iscsi.IO
	for i := range uint64(64) {
		ios = append(ios, iscsi.IO{ID: i, Op: iscsi.Op(i % 2), LBA: 8 * i, Buffers: [][]byte{make([]byte, 4096)}})
	}
	n, err := q.Post(ios...)
	s.Must(err)
	for _, r := range s.relays {
		s.Check(r.l.Close())
		r.cut()
	}
	var seen [64]int
	got := make([]iscsi.Completion, 64)
	for n > 0 {
		s.Must(q.Wait(s.Ctx()))
		k := q.Poll(got)
		for _, c := range got[:k] {
			seen[c.ID]++
			if !errors.Is(c.Err, iscsi.ErrSessionLost) {
				t.Errorf("IO %d: %v", c.ID, c.Err)
			}
		}
		n -= k
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("IO %d completed %d times", id, times)
		}
	}
	if _, err := s.d.ReadAt(make([]byte, 512), 0); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a read: %v", err)
	}
	if _, err := q.Post(ios[0]); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a post: %v", err)
	}
	if err := q.Wait(s.Ctx()); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("a wait: %v", err)
	}
	s.Check(q.Close())
	if s.count(iscsi.EventLost) != 1 {
		t.Errorf("events %v", s.events)
	}
}

// TestOtherUnitOnAPath: a path to another unit is refused, at the dial and later.
func TestOtherUnitOnAPath(t *testing.T) {
	other := serveOn(t, ram(t, 64<<20), func(c *iscsi.ServerConfig) {
		c.Targets[0].LUNs = map[uint16]iscsi.LUN{1: {Backend: ram(t, 64<<20), Serial: "another"}}
	}).Addr().String()
	s := newSeveral(t, 2, iscsi.Config{}, nil)
	r := newRelay(t, other)
	_, err := iscsi.DialMultipath(context.Background(), []string{s.relays[0].url(), r.url()}, iscsi.Config{})
	if err == nil || !strings.Contains(err.Error(), "the unit is not the one") || !strings.Contains(err.Error(), "page 83h") {
		t.Errorf("a dial: %v", err)
	}
	s.relays[1].to.Store(&other)
	s.relays[1].cut()
	s.Eventually("the path is refused", func() bool {
		p := s.d.Paths()[1]
		return p.State == iscsi.PathDown && p.Err != nil && strings.Contains(p.Err.Error(), "page 83h")
	})
	patterns(t, s.d, s.disk)
	back := s.server.Addrs()[1].String()
	s.relays[1].to.Store(&back)
	s.become(bothWork(iscsi.RoundRobin)...)
}

// TestMultipathDial: one path is enough at the start, and none is not. Mistakes are told.
func TestMultipathDial(t *testing.T) {
	s := newSeveral(t, 1, iscsi.Config{}, nil)
	nobody := "iscsi://127.0.0.1:1/" + ownTarget + "/1"
	d, err := iscsi.DialMultipath(context.Background(), []string{nobody, s.relays[0].url()}, iscsi.Config{})
	s.Must(err)
	if p := d.Paths(); p[0].State != iscsi.PathDown || p[0].Err == nil || p[1].State != iscsi.PathActive {
		t.Errorf("paths %+v", p)
	}
	s.Check(d.Close())
	s.Check(d.Close())
	d, err = iscsi.Dial(context.Background(), nobody+"?path="+s.relays[0].l.Addr().String(), iscsi.Config{})
	s.Must(err)
	if p := d.Paths(); len(p) != 2 || p[1].State != iscsi.PathActive {
		t.Errorf("paths %+v", p)
	}
	if err := d.Register(1, false); err == nil || !strings.Contains(err.Error(), "several paths") {
		t.Errorf("a registration over two paths: %v", err)
	}
	s.Check(d.Close())
	if _, err := iscsi.DialSession(context.Background(), nobody+"?path=h", iscsi.Config{}); err == nil || !strings.Contains(err.Error(), "one path") {
		t.Errorf("a session over two paths: %v", err)
	}
	for _, c := range []struct {
		urls []string
		c    iscsi.Config
		want string
	}{
		{nil, iscsi.Config{}, "give 1 to 32 URLs"},
		{[]string{nobody, nobody}, iscsi.Config{}, "no path gives access"},
		{[]string{"iscsi://127.0.0.1"}, iscsi.Config{}, "names no target"},
		{[]string{nobody}, iscsi.Config{Policy: 9}, "no Policy 9"},
	} {
		if _, err := iscsi.DialMultipath(context.Background(), c.urls, c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.urls, err, c.want)
		}
	}
}

// TestMultipathQueues: queues come and go while paths do. Config.Depth limits them.
func TestMultipathQueues(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{Depth: 16}, nil)
	if _, err := s.d.Queue(17); err == nil {
		t.Error("a queue of depth 17")
	}
	for i := range 20 {
		l := newLoad(t, s.d, 16, 4<<10)
		if _, err := s.d.Queue(1); err == nil {
			t.Error("a queue more than Config.Depth permits")
		}
		l.run(&s.Stage, func() bool {
			if l.done.Load() == 20 {
				s.relays[i%2].cut()
			}
			return l.done.Load() > 100
		})
		s.Must(l.q.Close())
		s.Must(l.q.Close())
	}
}

// TestMultipathCancel: canceled IOs give their buffers back, on a path and while there is
// none.
func TestMultipathCancel(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{}, nil)
	q, err := s.d.Queue(4)
	s.Must(err)
	wait := func(id uint64) {
		t.Helper()
		got := make([]iscsi.Completion, 1)
		s.Must(q.Wait(s.Ctx()))
		if n := q.Poll(got); n != 1 || got[0].ID != id || !errors.Is(got[0].Err, iscsi.ErrCanceled) {
			t.Fatalf("IO %d: %+v", id, got[:n])
		}
	}
	post := func(id uint64) {
		t.Helper()
		n, err := q.Post(iscsi.IO{ID: id, Buffers: [][]byte{make([]byte, 4096)}})
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, r := range s.relays {
		r.mute()
	}
	post(1)
	time.Sleep(20 * time.Millisecond) // the command has left, in most runs
	if !q.Cancel(1) || q.Cancel(1) || q.Cancel(7) {
		t.Error("Cancel")
	}
	wait(1)
	for _, r := range s.relays {
		s.Check(r.l.Close())
		r.cut()
	}
	s.become(iscsi.PathDown, iscsi.PathDown)
	post(2)
	q.Cancel(2)
	wait(2)
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if _, err := s.d.Do(ctx, iscsi.Command{CDB: make([]byte, 6)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a command: %v", err)
	}
	s.Check(q.Close())
}

// TestMultipathUncertain: a command that must not be executed twice is not repeated on
// another path.
func TestMultipathUncertain(t *testing.T) {
	s := newSeveral(t, 2, iscsi.Config{Policy: iscsi.FailOver}, nil)
	s.relays[0].mute()
	var end atomic.Bool
	cdb := make([]byte, 16)
	cdb[0], cdb[13] = 0x89, 1 // COMPARE AND WRITE
	go func() {
		for !end.Load() {
			time.Sleep(20 * time.Millisecond)
			s.relays[0].cut()
		}
	}()
	if _, err := s.d.Do(s.Ctx(), iscsi.Command{CDB: cdb, Out: make([]byte, 1024)}); !errors.Is(err, iscsi.ErrUncertain) {
		t.Errorf("COMPARE AND WRITE: %v", err)
	}
	end.Store(true)
	patterns(t, s.d, s.disk)
}

// slowWrites is a disk whose first write of a block waits.
type slowWrites struct {
	*backend.RAM
	began, goOn chan struct{}
	first       atomic.Bool
}

// Lend implements unit.Lender: the disk lends nothing, so that WriteAt is used.
func (*slowWrites) Lend(int64, int64, bool) []byte { return nil }

func (s *slowWrites) WriteAt(p []byte, off int64) (int, error) {
	if s.first.CompareAndSwap(false, true) {
		close(s.began)
		<-s.goOn
	}
	return s.RAM.WriteAt(p, off)
}

// TestStaleWrite: the target executes a write of a lost path late. It must not come behind
// what the program writes there when the repeated write has completed.
func TestStaleWrite(t *testing.T) {
	slow := &slowWrites{RAM: ram(t, 64<<20), began: make(chan struct{}), goOn: make(chan struct{})}
	s := newSeveral(t, 2, iscsi.Config{Policy: iscsi.FailOver}, func(c *iscsi.ServerConfig) {
		c.Targets[0].LUNs = map[uint16]iscsi.LUN{1: {Backend: slow}}
	})
	first, second := random(4096, 1), random(4096, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := s.d.WriteAt(first, 0)
		s.Check(err)
		_, err = s.d.WriteAt(second, 0)
		s.Check(err)
	})
	s.Wait(slow.began, "the first write")
	nowhere := "127.0.0.1:1"
	s.relays[0].to.Store(&nowhere)
	s.relays[0].strand()
	s.become(iscsi.PathDown, iscsi.PathActive)
	time.Sleep(300 * time.Millisecond) // for a second write that comes too early
	close(slow.goOn)
	wg.Wait()
	time.Sleep(50 * time.Millisecond) // for a first write that comes too late
	got := make([]byte, 4096)
	if _, err := slow.ReadAt(got, 0); err != nil || !slices.Equal(got, second) {
		t.Errorf("the disk has the first write: %v, error %v", slices.Equal(got, first), err)
	}
}

// TestAccessUnderLoad: access states change under verified writes and reads, and commands
// take the paths that they should.
func TestAccessUnderLoad(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			s := newSeveral(t, 2, iscsi.Config{Policy: policy, PathCheck: time.Hour}, nil)
			both := []iscsi.AccessState{iscsi.AccessOptimized, iscsi.AccessNonOptimized, iscsi.AccessStandby, iscsi.AccessUnavailable, iscsi.AccessTransitioning}
			n := 0
			outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), deaths(), func() {
				n++
				good, other := uint16(1+n%2), uint16(2-n%2)
				s.Must(s.server.SetAccess(other, both[n%len(both)]))
				s.Must(s.server.SetAccess(good, iscsi.AccessOptimized))
			})
			s.Must(s.server.SetAccess(1, iscsi.AccessStandby))
			s.Must(s.server.SetAccess(2, iscsi.AccessNonOptimized))
			patterns(t, s.d, s.disk)
			s.become(iscsi.PathPassive, iscsi.PathActive)
			if p := s.d.Paths(); p[0].Access != iscsi.AccessStandby || p[0].Group != 1 || p[1].Access != iscsi.AccessNonOptimized || p[1].Group != 2 {
				t.Errorf("paths %+v", p)
			}
			s.Must(s.server.SetAccess(1, iscsi.AccessOptimized))
			_, err := s.d.ReadAt(make([]byte, 512), 0) // a command tells of the change
			s.Must(err)
			s.become(iscsi.PathActive, iscsi.PathReady)
			if s.count(iscsi.EventAccess) == 0 {
				t.Error("no event of an access state")
			}
		})
	}
}

// TestNoAccess: commands wait while no path gives access. Where the initiator may, it makes
// a path active.
func TestNoAccess(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		t.Run(fmt.Sprint("explicit ", explicit), func(t *testing.T) {
			s := newSeveral(t, 2, iscsi.Config{PathCheck: 100 * time.Millisecond}, func(c *iscsi.ServerConfig) {
				c.ExplicitAccess = explicit
				c.Access = map[uint16]iscsi.AccessState{2: iscsi.AccessStandby}
			})
			s.become(iscsi.PathActive, iscsi.PathPassive)
			outages(&s.Stage, newLoad(t, s.d, 16, 16<<10), 3, func() {
				s.Must(s.server.SetAccess(2, iscsi.AccessUnavailable))
				s.Must(s.server.SetAccess(1, iscsi.AccessUnavailable))
				if !explicit {
					s.become(iscsi.PathPassive, iscsi.PathPassive)
					s.Must(s.server.SetAccess(2, iscsi.AccessNonOptimized))
				}
			})
		})
	}
}
