package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/need"
	common "github.com/stag-rdma/stag/test/rig"
)

// groupRegions is MaxRegions of the members of a test's group.
const groupRegions = 1023

// groupsMade counts the groups of this process, so that each has a name of its own.
var groupsMade atomic.Int32

// groupRig is a rig whose adapter b is in a group. a is its peer.
type groupRig struct {
	*rig
	name string
	logs *logBook
}

// inGroup runs test over both paths. Adapter b is in a group.
func inGroup(t *testing.T, test func(r *groupRig)) {
	for _, path := range []string{"kernel port", "offloaded"} {
		t.Run(path, func(t *testing.T) {
			need.Root(t)
			need.XDP(t)
			g := &groupRig{logs: new(logBook), name: fmt.Sprintf("test-%d-%d", os.Getpid(), groupsMade.Add(1))}
			member := Config{MemoryGroup: g.name, MaxRegions: groupRegions, RegionHeap: 8 << 20, Log: slog.New(slog.NewTextHandler(g.logs, nil))}
			if path == "offloaded" {
				g.rig = newStage(t, pair.Config{})
				g.openHosts(func(side pair.Side) Config {
					c := Config{}
					if side == pair.B {
						c = member
					}
					c.Ports = []string{g.pair.Ends[side].Name}
					return c
				})
			} else {
				g.rig = &rig{Stage: common.On(t), host: "127.0.0.1"}
				common.NoLeaks(g.rig)
				member.KernelPort = true
				g.a, g.b = g.open(Config{KernelPort: true}), g.open(member)
			}
			test(g)
		})
	}
}

// logBook keeps the lines of a log.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBook) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), words)
}

// pairUp connects a to b. The QP of b is of the protection domain pd.
func (g *groupRig) pairUp(pd *PD, w wants) (x, y *end) {
	g.Helper()
	x, y = g.newEnd(g.a, w), &end{r: g.rig, a: g.b, pd: pd}
	var err error
	y.send, err = g.b.CreateCQ(64)
	g.Must(err)
	y.recv = y.send
	y.qp, err = pd.CreateQP(QPConfig{SendCQ: y.send, RecvCQ: y.recv})
	g.Must(err)
	g.Must(g.join(x, y, w))
	return x, y
}

// shared joins the protection domain of the owners.
func (g *groupRig) shared() *PD {
	g.Helper()
	pd, err := g.b.AllocSharedPD(ownerPD)
	g.Must(err)
	return pd
}

// groupCounters returns the counters of a's group, and stag_unresolved.
func groupCounters(a *Adapter) (list []report.Counter) {
	r, err := a.Report(context.Background())
	if err != nil {
		panic(err)
	}
	for _, c := range r.Counters {
		if c.Layer == "group" || c.Layer == "tpt" {
			list = append(list, c)
		}
	}
	return list
}

// counter returns a counter of b.
func (g *groupRig) counter(name string) uint64 {
	g.Helper()
	for _, c := range groupCounters(g.b) {
		if c.Name == name {
			return c.Value
		}
	}
	g.Fatalf("no counter %s", name)
	return 0
}

// counts demands values of counters of b.
func (g *groupRig) counts(want map[string]uint64) {
	g.Helper()
	for name, n := range want {
		if have := g.counter(name); have != n {
			g.Errorf("%s is %d, want %d", name, have, n)
		}
	}
}

// exchange writes a pattern into the region s of another process through b, and reads it
// back.
func (g *groupRig) exchange(x *end, p *ownerProcess, s STag, n, seed int) {
	g.Helper()
	mem := x.mr.Bytes()
	fill(mem[:n], seed)
	want := fmt.Sprintf("%x", sha256.Sum256(mem[:n]))
	x.post(
		SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, n)}, RKey: s},
		SendWR{ID: 1, Op: WRRead, SGL: []SGE{x.mr.SGE(n, n)}, RKey: s, Flags: Signaled | Fence},
	)
	g.ok(x.sent(1))
	if got := p.sum(s); got != want {
		g.Errorf("the owner's memory has the checksum %s, want %s", got, want)
	}
	if !bytes.Equal(mem[:n], mem[n:2*n]) {
		g.Error("the Read brought other octets")
	}
}

// A peer of one process writes and reads the memory of another. Only the first access asks
// the owner.
func TestGroup(t *testing.T) {
	inGroup(t, func(g *groupRig) {
		p := startOwner(g, g.name)
		one := p.region("alloc %d %d", 60000, all|RemoteAtomic)
		pd := g.shared()
		w := extended
		w.heap = 256 << 10
		x, _ := g.pairUp(pd, w)
		g.exchange(x, p, one, 60000, 1)
		g.counts(map[string]uint64{"asked": 1, "mapped": 1, "stag_unresolved": 0, "bad_stag": 0})

		g.exchange(x, p, one, 60000, 2)
		two := p.region("alloc %d %d", 100000, all)
		g.exchange(x, p, two, 100000, 3)
		other, _ := g.pairUp(pd, w)
		g.exchange(other, p, one, 60000, 4)
		g.counts(map[string]uint64{"asked": 1, "mapped": 1})
		if n := p.do("answered"); n != "1" {
			g.Errorf("the owner has answered %s times", n)
		}

		// Atomic operations too.
		p.do("fill %d 9", uint32(one))
		x.post(SendWR{Op: WRFetchAdd, CompareAdd: 5, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: one, RemoteAddr: 64, Flags: Signaled})
		g.ok(x.sent(1))
		mine := make([]byte, 60000)
		fill(mine, 9)
		if !bytes.Equal(mine[64:72], x.mr.Bytes()[:8]) {
			g.Error("the atomic operation returned another value")
		}

		// The first access of all is a Read, of another owner.
		q := startOwner(g, g.name)
		three := q.region("alloc %d %d", 5000, all)
		q.do("fill %d 7", uint32(three))
		x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 5000)}, RKey: three, Flags: Signaled})
		g.ok(x.sent(1))
		if got := fmt.Sprintf("%x", sha256.Sum256(x.mr.Bytes()[:5000])); got != q.sum(three) {
			g.Error("the Read brought other octets")
		}
		g.counts(map[string]uint64{"asked": 2, "mapped": 2})
		q.leave()
		g.Eventually("the memory of a process that leaves is dropped", func() bool { return g.counter("dropped") == 1 })
		g.exchange(x, p, two, 100000, 5)
	})
}

// An access is refused as an invalid STag, and counted, if the memory cannot be had.
func TestGroupRefuses(t *testing.T) {
	inGroup(t, func(g *groupRig) {
		p := startOwner(g, g.name)
		pd := g.shared()
		for _, c := range []struct {
			name    string
			stag    STag
			write   rdmap.Code
			counter string
			log     string
		}{
			{"Go heap", p.region("own 4096"), rdmap.Code{Layer: 1, Type: 1, Code: 0}, "not_shareable", "use AllocMR"},
			{"page list", p.region("pages"), rdmap.Code{Layer: 1, Type: 1, Code: 0}, "not_shareable", ""},
			{"one touch", p.region("touch"), rdmap.Code{Layer: 1, Type: 1, Code: 0}, "not_shareable", ""},
			{"closed", p.region("alloc 4096 %d", all), rdmap.Code{Layer: 1, Type: 1, Code: 0}, "bad_stag", ""},
			{"private", p.region("private"), rdmap.Code{Layer: 1, Type: 1, Code: 2}, "wrong_pd", ""},
		} {
			if c.name == "closed" {
				p.do("close %d", uint32(c.stag))
			}
			for _, op := range []WROp{WRWrite, WRRead} {
				if c.name == "one touch" && op == WRRead {
					continue // it has no such right
				}
				before := g.counter(c.counter)
				x, y := g.pairUp(pd, wants{})
				x.post(SendWR{Op: op, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: c.stag, Flags: Signaled})
				x.done()
				y.done()
				var there *QPError
				if !errors.As(x.qp.Err(), &there) || !there.Remote || op == WRWrite && there.Code != c.write {
					g.Errorf("%s, %v: %v", c.name, op, x.qp.Err())
				}
				if after := g.counter(c.counter); after != before+1 {
					g.Errorf("%s, %v: %s went from %d to %d", c.name, op, c.counter, before, after)
				}
				g.event(g.a, QPFatal)
				g.event(g.b, QPFatal)
				g.Check(x.qp.Close())
				g.Check(y.qp.Close())
			}
			if c.log != "" && !g.logs.has(c.log) {
				g.Errorf("%s: the log does not say %q", c.name, c.log)
			}
		}
		if n := g.counter("stag_unresolved"); n != 5 {
			g.Errorf("%d accesses count as unresolved, want 5", n)
		}
		// The connections of the process do their work.
		x, _ := g.pairUp(pd, wants{})
		g.exchange(x, p, p.region("alloc 4096 %d", all), 4096, 1)
	})
}

// The owner is killed. Its memory is dropped, accesses are refused as an invalid STag, and
// a process that takes its place is asked anew.
func TestGroupOwnerKilled(t *testing.T) {
	inGroup(t, func(g *groupRig) {
		p := startOwner(g, g.name)
		stag, target, fresh := p.region("alloc 65536 %d", all), p.region("alloc 65536 %d", all), p.region("alloc 4096 %d", all)
		pd := g.shared()
		x, y := g.pairUp(pd, wants{heap: 256 << 10})
		g.exchange(x, p, stag, 65536, 1)
		fire, hit := g.pairUp(pd, wants{heap: 256 << 10})
		burning := make(chan struct{})
		go func() { // Writes and Reads are under way when the owner ends
			defer close(burning)
			for fire.qp.Err() == nil {
				if _, err := fire.qp.PostSend(
					SendWR{Op: WRWrite, SGL: []SGE{fire.mr.SGE(0, 65536)}, RKey: target},
					SendWR{Op: WRRead, SGL: []SGE{fire.mr.SGE(65536, 65536)}, RKey: target, Flags: Signaled},
				); err != nil {
					return
				}
				fire.r.poll(fire.send, 1)
			}
		}()
		for range 10 {
			g.exchange(x, p, stag, 65536, 1)
		}
		p.kill()
		fire.done()
		hit.done()
		<-burning
		g.Eventually("the memory is dropped", func() bool { return g.counter("dropped") == 1 })
		if err := x.qp.Err(); err != nil {
			g.Errorf("a connection that does not use the memory has ended: %v", err)
		}
		before := g.counter("stag_unresolved")
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: fresh, Flags: Signaled})
		x.done()
		y.done()
		var there *QPError
		if !errors.As(x.qp.Err(), &there) || there.Code != (rdmap.Code{Layer: 1, Type: 1, Code: 0}) {
			g.Errorf("a Write to memory of a process that was killed: %v", x.qp.Err())
		}
		if after := g.counter("stag_unresolved"); after != before+1 {
			g.Errorf("stag_unresolved went from %d to %d", before, after)
		}
		if g.counter("gone") == 0 {
			g.Error("no access counts as one to a process that has ended")
		}
		q := startOwner(g, g.name)
		again, _ := g.pairUp(pd, wants{})
		g.exchange(again, q, q.region("alloc 4096 %d", all), 4096, 2)
		mine, err := pd.AllocMR(4096, all)
		g.Must(err)
		again.post(SendWR{Op: WRWrite, SGL: []SGE{again.mr.SGE(0, 4096)}, RKey: mine.RKey(), Flags: Signaled},
			SendWR{Op: WRRead, SGL: []SGE{again.mr.SGE(4096, 4096)}, RKey: mine.RKey(), Flags: Signaled})
		g.ok(again.sent(2))
		same(g.rig, "a region of this process", 4096, again.mr.Bytes()[:4096], mine.Bytes())
	})
}

// An owner that does not answer holds up only the connection whose peer needs its memory,
// and not for ever.
func TestGroupOwnerSilent(t *testing.T) {
	inGroup(t, func(g *groupRig) {
		p := startOwner(g, g.name)
		stag := p.region("alloc 4096 %d", all)
		g.Must(p.cmd.Process.Signal(syscall.SIGSTOP))
		pd := g.shared()
		x, y := g.pairUp(pd, wants{})
		other, _ := g.pairUp(pd, wants{})
		mine, err := pd.AllocMR(4096, all)
		g.Must(err)
		x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: stag, Flags: Signaled})
		g.Eventually("the owner is asked", func() bool { return g.counter("asked") == 1 })
		for range 100 {
			other.post(SendWR{Op: WRWrite, SGL: []SGE{other.mr.SGE(0, 4096)}, RKey: mine.RKey()},
				SendWR{Op: WRRead, SGL: []SGE{other.mr.SGE(0, 4096)}, RKey: mine.RKey(), Flags: Signaled})
			g.ok(other.sent(1))
		}
		if y.qp.Err() != nil {
			g.Errorf("the connection did not wait for the answer: %v", y.qp.Err())
		}
		x.done()
		y.done()
		if c := x.sent(1)[0]; c.Status != RemoteAccessErr {
			g.Errorf("%+v", c)
		}
		g.counts(map[string]uint64{"gone": 1, "stag_unresolved": 1, "mapped": 0})
		g.Must(p.cmd.Process.Signal(syscall.SIGCONT))
		again, _ := g.pairUp(pd, wants{})
		g.exchange(again, p, stag, 4096, 1)
	})
}

// Names and limits.
func TestGroupNames(t *testing.T) {
	need.Root(t)
	r := common.On(t)
	a, err := Open(Config{KernelPort: true})
	r.Must(err)
	defer a.Close()
	_, err = a.AllocSharedPD("x")
	r.Says(err, ErrNoMemoryGroup, "Config")
	for _, name := range []string{"a/b", "..", ".x", strings.Repeat("x", 33), "a b"} {
		if _, err := Open(Config{KernelPort: true, MemoryGroup: name}); err == nil {
			t.Errorf("the group %q was joined", name)
		}
	}
	b, err := Open(Config{KernelPort: true, MemoryGroup: fmt.Sprintf("test-%d-names", os.Getpid()), MaxRegions: 63, RegionHeap: 1 << 20})
	r.Must(err)
	defer b.Close()
	pd, err := b.AllocSharedPD("x")
	r.Must(err)
	_, err = b.AllocSharedPD("x")
	r.Says(err, ErrInUse, "close that one")
	if _, err := b.AllocSharedPD("x/y"); err == nil {
		t.Error("a protection domain x/y")
	}
	r.Must(pd.Close())
	pd, err = b.AllocSharedPD("x")
	r.Must(err)
	r.Must(pd.Close())
	if _, err := Open(Config{KernelPort: true, MemoryGroup: fmt.Sprintf("test-%d-names", os.Getpid()), MaxRegions: 127, RegionHeap: 1 << 20}); err == nil || !strings.Contains(err.Error(), "MaxRegions") {
		t.Errorf("a member with other ranges: %v", err)
	}
	if _, err := Open(Config{KernelPort: true, MemoryGroup: "big", MaxRegions: 1 << 20}); err == nil || !strings.Contains(err.Error(), "1048575") {
		t.Errorf("too many regions: %v", err)
	}
}
