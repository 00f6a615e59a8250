package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// TestUpgraded hands connections from process to process 20 times, while both ends send
// without pause. The peers are the kernel's TCP. No octet is lost or doubled, nobody is reset,
// and the connections end in good order.
func TestUpgraded(t *testing.T) {
	t.Parallel()
	rounds := 20
	if os.Getenv("STAG_LONG") == "1" {
		rounds = 60
	}
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			r := newStage(t, setup{})
			l := r.listen(theirs, v6)
			h, peers := r.holdsUnderFire(l, 4)
			var frozen []time.Duration
			for range rounds {
				r.flow(peers, 1<<20)
				var d time.Duration
				h, d = h.handOver()
				frozen = append(frozen, d)
			}
			r.endAll(h, peers)
			var silent time.Duration
			for _, k := range peers {
				silent = max(silent, time.Duration(k.gap.Load()))
			}
			slices.Sort(frozen)
			t.Logf("%d upgrades of %d connections: frozen %v in the median, %v at most; longest silence towards a peer %v",
				rounds, len(peers), frozen[len(frozen)/2], frozen[len(frozen)-1], silent)
		})
	}
}

// holdsUnderFire starts a holder with n connections, whose peers send without pause.
func (r *rig) holdsUnderFire(l *net.TCPListener, n int) (h *heir, peers []*talk) {
	r.Helper()
	h = r.holds("", "")
	h.says("ready")
	return h, h.dials(l, n)
}

// dials makes n connections of a holder, whose peers send without pause.
func (h *heir) dials(l *net.TCPListener, n int) (peers []*talk) {
	h.Helper()
	for range n {
		h.do("dial " + l.Addr().String())
		c := h.accept(l)
		h.says("ok")
		peers = append(peers, (&talk{conn: c, out: seedTheirs, in: seedOurs, send: 1 << 40, halfShut: true}).start())
	}
	return peers
}

// flow waits until n octets have passed in both directions of each connection.
func (r *rig) flow(peers []*talk, n uint64) {
	r.Helper()
	for _, k := range peers {
		sent, received := k.sent.Load()+n, k.received.Load()+n
		r.Eventually("octets flow both ways", func() bool { return k.sent.Load() >= sent && k.received.Load() >= received })
	}
}

// TestUpgradeOldKilled kills the old process with SIGKILL at each step. If the state had
// arrived, the new process continues. Otherwise the peers are reset, as without an upgrade, and
// the interface can be opened again at once.
func TestUpgradeOldKilled(t *testing.T) {
	for _, c := range []struct {
		step  string
		lives bool // the connections live on
	}{
		{"hello", false}, {"port", false}, {"ready", false}, {"flow", false}, {"complete", false},
		{"released", true}, {"bound", true}, {"commit", true}, {"taken", true}, {"done", true},
	} {
		t.Run(c.step, func(t *testing.T) {
			r := newStage(t, setup{})
			h, peers := r.holdsUnderFire(r.listen(theirs, false), 2)
			r.flow(peers, 1<<20)
			path := h.socket()
			h.do("offer " + path + " " + c.step)
			h.says("listening")
			next := r.holds(path, "")
			h.isKilled()
			if c.lives {
				next.says("ready")
				r.flow(peers, 1<<20)
				next, _ = next.handOver()
				r.flow(peers, 1<<20)
				r.endAll(next, peers)
				return
			}
			next.fails("the other process has closed the connection")
			for _, k := range peers {
				r.isReset(<-k.wrote)
				<-k.read
			}
			r.open(nic.Config{})
			our, peer := r.connect(way{})
			r.take(our, octets.NewEcho())
			r.pingPong(peer)
		})
	}
}

// TestUpgradeNewKilled kills the new process with SIGKILL at each step. Before it has taken the
// connections, the old process runs them on. Afterwards the peers are reset.
func TestUpgradeNewKilled(t *testing.T) {
	for _, c := range []struct {
		step  string
		lives bool // the connections live on
	}{
		{"ready", true}, {"flow", true}, {"released", true}, {"bound", true}, {"commit", true}, {"taken", true}, {"done", false},
	} {
		t.Run(c.step, func(t *testing.T) {
			r := newStage(t, setup{})
			h, peers := r.holdsUnderFire(r.listen(theirs, false), 2)
			r.flow(peers, 1<<20)
			path := h.socket()
			h.do("offer " + path + " -")
			h.says("listening")
			r.holds(path, c.step).isKilled()
			if !c.lives {
				h.says("handed")
				h.ends()
				for _, k := range peers {
					r.isReset(<-k.wrote)
					<-k.read
				}
				return
			}
			if why := strings.Join(h.says("kept"), " "); !strings.Contains(why, "has closed the connection, or has died") {
				t.Errorf("the old process says %q", why)
			}
			r.flow(peers, 1<<20)
			h, _ = h.handOver()
			r.flow(peers, 1<<20)
			r.endAll(h, peers)
		})
	}
}

// TestUpgradeNewStopped stops the new process while connections are frozen. The old process waits
// longer than the program keeps the flows of a dead engine. Then it kills the new process and runs
// the connections on.
func TestUpgradeNewStopped(t *testing.T) {
	for _, step := range []string{"bound", "taken"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			r := newStage(t, setup{})
			h, peers := r.holdsUnderFire(r.listen(theirs, false), 2)
			r.flow(peers, 1<<20)
			path := h.socket()
			h.do("offer " + path + " -")
			h.says("listening")
			next := r.holds(path, stopAt+step)
			if why := strings.Join(h.says("kept"), " "); !strings.Contains(why, "the other process is late") {
				t.Errorf("the old process says %q", why)
			}
			next.isKilled()
			r.flow(peers, 1<<20)
			h, _ = h.handOver()
			r.flow(peers, 1<<20)
			r.endAll(h, peers)
		})
	}
}

// TestUpgradeRefused starts successors with another configuration. Each refuses in one line, and
// the old process runs its connections on.
func TestUpgradeRefused(t *testing.T) {
	r := newStage(t, setup{})
	r.secondCable()
	h, peers := r.holdsUnderFire(r.listen(theirs, false), 2)
	first := r.pair.Ends[ours].Name
	for _, c := range []struct{ links, dies, why string }{
		{first + ",q0", "", "the old process does not have the interface q0"},
		{"q0", "", "the old process has the interface " + first + ", and this one has not"},
		{first, tooMany, "flows asked for"},
		{first, otherLayers, "unknown kind of object"},
	} {
		r.flow(peers, 1<<20)
		path := h.socket()
		h.do("offer " + path + " -")
		h.says("listening")
		next := r.holdsOn(c.links, path, c.dies)
		if why := strings.Join(h.says("kept"), " "); !strings.Contains(why, "the new process refuses: ") || !strings.Contains(why, c.why) {
			t.Errorf("%s: the old process says %q, want %q", c.links, why, c.why)
		}
		next.fails(c.why)
		r.flow(peers, 1<<20)
	}
	h, _ = h.handOver()
	r.flow(peers, 1<<20)
	r.endAll(h, peers)
}

// TestUpgradedMany hands 1,000 connections over, of which four send without pause.
func TestUpgradedMany(t *testing.T) {
	const many = 1000
	r := newStage(t, setup{})
	l := r.listen(theirs, false)
	h, peers := r.holdsUnderFire(l, 4)
	idle := make([]*talk, many-len(peers))
	for i := range idle {
		h.do("quiet " + l.Addr().String())
		c := r.accept(l)
		h.says("ok")
		idle[i] = &talk{conn: c, out: seedTheirs, in: seedOurs, send: 1000}
	}
	var frozen []time.Duration
	for range 3 {
		r.flow(peers, 1<<20)
		var d time.Duration
		h, d = h.handOver()
		frozen = append(frozen, d)
	}
	h.do("flows")
	if n := h.says("flows")[0]; n != fmt.Sprint(many) {
		t.Errorf("%s connections, want %d", n, many)
	}
	for _, k := range idle {
		_, err := k.conn.Write([]byte("ping"))
		r.Must(err)
	}
	for _, k := range idle {
		b := make([]byte, 4)
		_, err := io.ReadFull(k.conn, b)
		r.Must(err)
	}
	t.Logf("%d connections: frozen %v", many, frozen)
	r.noResets()
}

// TestUpgradeStranger connects to the old process as another user. The stranger gets nothing,
// and the successor comes after it.
func TestUpgradeStranger(t *testing.T) {
	r := newStage(t, setup{})
	h, peers := r.holdsUnderFire(r.listen(theirs, false), 1)
	path := h.socket()
	h.do("offer " + path + " -")
	h.says("listening")
	info, err := os.Stat(path)
	r.Must(err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	r.Must(errors.Join(os.Chmod(path, 0o666), os.Chmod(filepath.Dir(path), 0o755))) // as if the mode did not protect it
	self := filepath.Join(filepath.Dir(path), "stranger")
	program, err := os.ReadFile(os.Args[0])
	r.Must(err)
	r.Must(os.WriteFile(self, program, 0o755))
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), strangerAt+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if why := strings.Join(h.says("refused"), " "); !strings.Contains(why, "of user 65534") {
		t.Errorf("the old process says %q", why)
	}
	next := r.holds(path, "")
	h.says("handed")
	next.says("ready")
	r.flow(peers, 1<<20)
	r.endAll(next, peers)
}

// TestUpgradeHalfClosed hands over connections of which one end has closed its direction, and
// one in TIME-WAIT.
func TestUpgradeHalfClosed(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			r := newStage(t, setup{})
			h, peers := r.holdsUnderFire(r.listen(theirs, v6), 3)
			r.flow(peers, 1<<20)
			peers[0].enough.Store(true) // closes its direction: CLOSE-WAIT
			r.Must(<-peers[0].wrote)
			for _, i := range []int{1, 2} { // FIN-WAIT-2
				h.do(fmt.Sprint("halt ", i))
				h.says("ok")
				r.Must(<-peers[i].read)
			}
			peers[2].enough.Store(true) // both directions: TIME-WAIT
			r.Must(<-peers[2].wrote)
			r.Eventually("the peer has forgotten the connection", func() bool { return r.stateOf(peers[2].conn) == 7 })
			for range 5 {
				before, received := peers[1].sent.Load(), peers[0].received.Load()
				r.Eventually("octets flow one way", func() bool {
					return peers[1].sent.Load() > before+1<<20 && peers[0].received.Load() > received+1<<20
				})
				h, _ = h.handOver()
				h.do("flows")
				if n := h.says("flows")[0]; n != "3" {
					t.Fatalf("the new process has %s connections, want 3", n)
				}
			}
			peers[1].enough.Store(true)
			r.Must(<-peers[1].wrote)
			for _, k := range peers[:2] {
				k.wrote <- nil
			}
			peers[1].read <- nil
			r.endAll(h, peers[:2])
		})
	}
}

// TestUpgradedLoaded upgrades on a loaded interface. The pins stay, and show the new process as
// their user. When the last process is killed, its connections are orphans as ever.
func TestUpgradedLoaded(t *testing.T) {
	r := newStage(t, setup{})
	instance := r.loaded(loader.Options{})
	h, peers := r.holdsUnderFire(r.listen(theirs, false), 2)
	for range 3 {
		r.flow(peers, 1<<20)
		h, _ = h.handOver()
		_, p := r.pinned(instance)
		if !p.InUse || p.Owner.PID != h.cmd.Process.Pid || len(p.Flows) != len(peers) {
			t.Errorf("in use %v by %v, with %d flows: want pid %d and %d", p.InUse, p.Owner, len(p.Flows), h.cmd.Process.Pid, len(peers))
		}
		for _, f := range p.Flows {
			if int(f.PID) != h.cmd.Process.Pid || !f.Alive {
				t.Errorf("the entry %+v is of pid %d", f.Key, f.PID)
			}
		}
	}
	r.flow(peers, 1<<20)
	r.Must(h.cmd.Process.Kill())
	h.isKilled()
	for _, k := range peers {
		r.isReset(<-k.wrote)
		<-k.read
	}
	if _, p := r.pinned(instance); p.InUse || len(p.Flows) != 0 {
		t.Errorf("left: %+v", p)
	}
	r.open(nic.Config{})
	our, peer := r.connect(way{})
	r.take(our, octets.NewEcho())
	r.pingPong(peer)
}

// TestUpgradedPorts upgrades an adapter of two interfaces, and one of two instances. The
// connections stay at the interface where they are, and follow the route in the new process.
func TestUpgradedPorts(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprintf("pinned=%v", pinned), func(t *testing.T) {
			r := newStage(t, setup{})
			r.secondCable()
			for side, end := range []string{"q0", "q1"} {
				r.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
			}
			links := r.pair.Ends[ours].Name + ",q0"
			if pinned {
				for i, link := range strings.Split(links, ",") {
					r.stayWith(loader.Options{Link: link}, fmt.Sprint("ports", i))
				}
			}
			l := r.listen(theirs, false)
			h := r.holdsOn(links, "", "")
			h.says("ready")
			peers := h.dials(l, 3)
			at := func(want string) {
				t.Helper()
				r.Eventually("the connections are at "+want, func() bool {
					h.do("flows")
					return strings.Join(h.says("flows"), " ") == want
				})
			}
			at("3 0")
			through := func(link string) {
				t.Helper()
				r.ip(ours, "route", "replace", r.addr(theirs, false)+"/32", "dev", link, "src", r.addr(ours, false))
			}
			for _, c := range []struct{ link, at string }{{"q0", "0 3"}, {r.pair.Ends[ours].Name, "3 0"}, {"q0", "0 3"}} {
				through(c.link)
				at(c.at)
				r.flow(peers, 1<<20)
				h, _ = h.handOver()
				at(c.at)
				r.flow(peers, 1<<20)
			}
			r.endAll(h, peers)
		})
	}
}

// endAll ends the connections of h in good order, and checks that every octet has arrived and
// that nobody was reset.
func (r *rig) endAll(h *heir, peers []*talk) {
	r.Helper()
	for _, k := range peers {
		k.enough.Store(true)
	}
	for _, k := range peers {
		r.Must(<-k.wrote)
	}
	h.do("stop")
	var got, want []string // one line for each connection, because the order of the connections may differ
	for range peers {
		got = append(got, strings.Join(h.says("ended"), " "))
	}
	h.says("ok")
	for _, k := range peers {
		r.Must(<-k.read)
		want = append(want, fmt.Sprintf("%d %d <nil>", k.received.Load(), k.sent.Load()))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.Errorf("the connections have sent and received %q, and the peers have received and sent %q", got, want)
	}
	r.noResets() // when the process has ended, a FIN that a peer sends again is reset, as nobody is in TIME-WAIT
	h.ends()
}
