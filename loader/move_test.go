package loader_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// same compares two states of interfaces.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s: too much: %s", what, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: missing: %s", what, line)
		}
	}
}

// noJournal checks that no journal is left.
func noJournal(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(loader.RuntimeDir, "move*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// reached checks that packets of the peer reach an address of side A, and that the peer
// sends them to an interface.
func (p *twoPorts) reached(to loader.Link) {
	p.t.Helper()
	for _, a := range []netip.Addr{p.Ends[pair.A].V4.Addr(), p.Ends[pair.A].V6.Addr()} {
		rig.Eventually(p.t, fmt.Sprintf("the peer takes %v for at %s", a, to.Name), func() bool { return p.hears(a) == to.MAC.String() })
		netns.In(p.t, p, pair.A, func() error {
			n, err := loader.Open()
			if err != nil {
				return err
			}
			defer n.Close()
			r, err := n.Resolve(p.t.Context(), loader.Query{Dst: map[bool]netip.Addr{true: p.peer4, false: p.peer6}[a.Is4()], Src: a})
			if err == nil && r.OutIf != to.Index {
				p.t.Errorf("the way from %v leads through %s", a, r.OutName)
			}
			return err
		})
	}
}

func TestMoveAddresses(t *testing.T) {
	p := newTwoPorts(t)
	p.configure()
	before, empty := p.state(p.first.Name), p.state(p.next.Name)
	p.greet(p.Ends[pair.A].V4.Addr(), p.Ends[pair.A].V6.Addr())
	moved, err := p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	if len(moved.Addresses) != 8 || moved.Routes != 8 || len(moved.Left) != 0 {
		t.Errorf("%+v", moved)
	}
	after := p.state(p.next.Name)
	same(t, "the next interface", after, before)
	same(t, "the old interface", p.state(p.first.Name), empty)
	noJournal(t)
	p.reached(p.next)
	// The order of the addresses decides which is a source.
	if n := len(moved.Addresses); !slices.Equal(after[:n], before[:n]) {
		t.Errorf("in another order:\n%s\nwere\n%s", strings.Join(after[:n], "\n"), strings.Join(before[:n], "\n"))
	}
	// Nothing is left to be moved.
	moved, err = p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	if len(moved.Addresses)+moved.Routes != 0 {
		t.Errorf("moved twice: %+v", moved)
	}
	_, err = p.m.MoveAddresses(t.Context(), p.next, p.first, loader.MoveOptions{})
	rig.Must(t, err)
	same(t, "the first interface after the way back", p.state(p.first.Name), before)
	same(t, "the next interface after the way back", p.state(p.next.Name), empty)
	p.reached(p.first)
}

// The lines of a plan are commands that do the same, and the plan itself does nothing.
func TestPlan(t *testing.T) {
	p := newTwoPorts(t)
	p.configure()
	before, empty := p.state(p.first.Name), p.state(p.next.Name)
	lines, err := p.m.Plan(p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	same(t, "the interface of a plan", p.state(p.first.Name), before)
	noJournal(t)
	var comments int
	for _, l := range lines {
		if command, ok := strings.CutPrefix(l, "ip "); ok {
			p.ip(pair.A, command)
		} else if strings.HasPrefix(l, "# announce ") {
			comments++
		} else {
			t.Errorf("neither a command nor a comment: %s", l)
		}
	}
	if comments != 8 {
		t.Errorf("%d announcements in\n%s", comments, strings.Join(lines, "\n"))
	}
	p.usable(p.next.Name)
	same(t, "the next interface", p.state(p.next.Name), before)
	same(t, "the old interface", p.state(p.first.Name), empty)
}

// An interface that is down or deleted has lost things. The last Holdings know them.
func TestMoveOfWhatIsLost(t *testing.T) {
	for name, lose := range map[string]string{"down": "link set %s down", "deleted": "link del %s"} {
		t.Run(name, func(t *testing.T) {
			p := newTwoPorts(t)
			p.configure()
			before := p.state(p.first.Name)
			last, err := p.m.Holdings(p.first.Index)
			rig.Must(t, err)
			p.ip(pair.A, fmt.Sprintf(lose, p.first.Name))
			if _, err := p.m.Holdings(p.first.Index); !errors.Is(err, loader.ErrLinkDown) && !errors.Is(err, loader.ErrNoLink) {
				t.Errorf("holdings of an interface that is %s: %v", name, err)
			}
			if name == "deleted" {
				_, err = p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
				rig.Says(t, err, loader.ErrNoLink, p.first.Name)
			}
			_, err = p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{Last: last})
			rig.Must(t, err)
			same(t, "the next interface", p.state(p.next.Name), before)
			noJournal(t)
		})
	}
}

func TestMoveRefusals(t *testing.T) {
	p := newTwoPorts(t)
	before := p.state(p.first.Name)
	_, err := p.m.MoveAddresses(t.Context(), p.first, p.first, loader.MoveOptions{})
	rig.Says(t, err, loader.ErrNoLink, p.first.Name)
	p.ip(pair.A, "link set "+p.next.Name+" down")
	_, err = p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Says(t, err, loader.ErrLinkDown, p.next.Name)
	_, err = p.m.MoveAddresses(t.Context(), p.first, loader.Link{Name: "none", Index: 4711}, loader.MoveOptions{})
	rig.Says(t, err, loader.ErrNoLink)
	same(t, "after refusals", p.state(p.first.Name), before)
	noJournal(t)
}

// Addresses and routes that the kernel refuses on the next interface stay on the old one.
func TestMoveKeepsWhatIsRefused(t *testing.T) {
	p := newTwoPorts(t)
	p.configure()
	netns.In(t, p, pair.A, func() error { return netns.Sysctl("ipv6/conf/"+p.next.Name+"/disable_ipv6", "1") })
	moved, err := p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Says(t, err, unix.EACCES, p.Ends[pair.A].V6.Addr().String())
	if len(moved.Addresses) != 5 {
		t.Errorf("%+v", moved)
	}
	if s := strings.Join(p.state(p.first.Name), "\n"); strings.Count(s, "inet6") != 3 || strings.Contains(s, "inet ") {
		t.Errorf("the old interface has\n%s", s)
	}
	noJournal(t)
}

// A route with a next hop of its own or with several is left, and named.
func TestMoveLeavesSharedRoutes(t *testing.T) {
	p := newTwoPorts(t)
	p.ip(pair.A, "addr add 198.51.100.1/24 dev "+p.next.Name,
		"route add 10.3.0.0/16 nexthop via 192.0.2.2 dev "+p.first.Name+" nexthop via 198.51.100.2 dev "+p.next.Name,
		"nexthop add id 7 via 192.0.2.2 dev "+p.first.Name, "route add 10.4.0.0/16 nhid 7")
	lines, err := p.m.Plan(p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	var left []string
	for _, l := range lines {
		if strings.HasPrefix(l, "# left: ") {
			left = append(left, l)
		}
	}
	if len(left) != 2 || !strings.Contains(left[0], "10.3.0.0/16") || !strings.Contains(left[1], "10.4.0.0/16") {
		t.Errorf("%q", left)
	}
}

// The later announcements reach a peer that missed the first.
func TestAnnouncementsAreRepeated(t *testing.T) {
	p := newTwoPorts(t)
	a := p.Ends[pair.A].V4.Addr()
	p.greet(a)
	_, err := p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	rig.Eventually(t, "the peer follows", func() bool { return p.hears(a) == p.next.MAC.String() })
	p.ip(pair.B, fmt.Sprintf("neigh replace %v lladdr 02:00:00:00:00:99 dev br0 nud stale", a))
	rig.Eventually(t, "the peer follows again", func() bool { return p.hears(a) == p.next.MAC.String() })
}

// killed moves the addresses in another process, which is killed after n steps. It
// reports whether the process was killed.
func (p *twoPorts) killed(n int) bool {
	p.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=move until step %d", helperVariable, n), linkVariable+"="+p.first.Name+" "+p.next.Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var out []byte
	err := p.Do(pair.A, func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if failed := new(exec.ExitError); errors.As(err, &failed) && failed.Sys().(syscall.WaitStatus).Signaled() {
		return true
	}
	if err != nil || string(out) != "survived: <nil>\n" {
		p.t.Fatalf("%v: %s", err, out)
	}
	return false
}

func (p *twoPorts) repair() (done []string) {
	p.t.Helper()
	netns.In(p.t, p, pair.A, func() (err error) { done, err = loader.RepairMoves(); return err })
	return done
}

// TestKilledWhileMoving kills the process between any two steps. The repair completes
// the move, unless it has not begun.
func TestKilledWhileMoving(t *testing.T) {
	p := newTwoPorts(t)
	p.configure()
	first, none := p.state(p.first.Name), p.state(p.next.Name)
	for _, n := range []int{0, 1, 8, 9, 16, 17, 24, 31} { // 16 additions, then 17 removals
		if !p.killed(n) {
			t.Fatalf("not killed after %d steps", n)
		}
		done := p.repair()
		want, verb := p.next, "completed"
		if n == 0 {
			want, verb = p.first, "forgot"
		}
		if len(done) != 1 || !strings.HasPrefix(done[0], verb) {
			t.Fatalf("killed after %d steps: %q", n, done)
		}
		other := map[bool]string{true: p.first.Name, false: p.next.Name}[want.Index == p.next.Index]
		same(t, fmt.Sprintf("killed after %d steps: %s", n, want.Name), p.state(want.Name), slices.Clone(first))
		same(t, fmt.Sprintf("killed after %d steps: %s", n, other), p.state(other), slices.Clone(none))
		if t.Failed() {
			return
		}
		if again := p.repair(); len(again) != 0 {
			t.Errorf("repaired twice: %q", again)
		}
		if want.Index == p.next.Index {
			_, err := p.m.MoveAddresses(t.Context(), p.next, p.first, loader.MoveOptions{})
			rig.Must(t, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(loader.RuntimeDir, "move-*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// If one of the interfaces is deleted before the repair, the other has the addresses.
func TestRepairWithoutAnInterface(t *testing.T) {
	for _, c := range []struct {
		steps int
		gone  func(*twoPorts) string
		stays func(*twoPorts) string
		verb  string
	}{
		{16, func(p *twoPorts) string { return p.first.Name }, func(p *twoPorts) string { return p.next.Name }, "completed"},
		{25, func(p *twoPorts) string { return p.next.Name }, func(p *twoPorts) string { return p.first.Name }, "gave"},
		{0, func(p *twoPorts) string { return p.first.Name }, func(p *twoPorts) string { return p.next.Name }, "completed"},
	} {
		p := newTwoPorts(t)
		p.configure()
		want := p.state(p.first.Name)
		if !p.killed(c.steps) {
			t.Fatal("not killed")
		}
		p.ip(pair.A, "link del "+c.gone(p))
		if done := p.repair(); len(done) != 1 || !strings.HasPrefix(done[0], c.verb) {
			t.Errorf("%q", done)
		}
		same(t, "the interface that is there", p.state(c.stays(p)), want)
	}
}

// A move of a running process is no move to be repaired.
func TestRepairLeavesRunningMoves(t *testing.T) {
	p := newTwoPorts(t)
	p.configure()
	before := p.state(p.first.Name)
	defer loader.SetMoveStep(func(string) {})
	loader.SetMoveStep(func(string) {
		if done := p.repair(); len(done) != 0 {
			t.Errorf("repaired during the move: %q", done)
		}
	})
	_, err := p.m.MoveAddresses(t.Context(), p.first, p.next, loader.MoveOptions{})
	rig.Must(t, err)
	same(t, "the next interface", p.state(p.next.Name), before)
}

// Another start of the kernel has other interfaces. Damaged journals are named.
func TestRepairOfUnusableJournals(t *testing.T) {
	p := newTwoPorts(t)
	before := p.state(p.first.Name)
	rig.Must(t, os.MkdirAll(loader.RuntimeDir, 0o755))
	path := filepath.Join(loader.RuntimeDir, "move-1-1")
	rig.Must(t, os.WriteFile(path, []byte(`{"boot":"another"}`), 0o600))
	if done := p.repair(); len(done) != 0 {
		t.Errorf("%q", done)
	}
	noJournal(t)
	for _, text := range []string{"{", `{"boot":"","what":{"addresses":["AAAA"]}}`} {
		rig.Must(t, os.WriteFile(path, []byte(text), 0o600))
		netns.In(t, p, pair.A, func() error {
			_, err := loader.RepairMoves()
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%v", err)
			}
			return nil
		})
	}
	rig.Must(t, os.Remove(path))
	same(t, "afterwards", p.state(p.first.Name), before)
}

// Sweep, with which stag load and stag unload begin and end, completes moves.
func TestSweepCompletesMoves(t *testing.T) {
	p := newTwoPorts(t)
	before := p.state(p.first.Name)
	if !p.killed(2) {
		t.Fatal("not killed")
	}
	var done []string
	netns.In(t, p, pair.A, func() (err error) { done, err = loader.Sweep(); return err })
	if !slices.ContainsFunc(done, func(s string) bool { return strings.HasPrefix(s, "completed the move of ") }) {
		t.Errorf("%q", done)
	}
	same(t, "the next interface", p.state(p.next.Name), before)
	noJournal(t)
}
