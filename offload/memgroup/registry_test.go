package memgroup

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/tpt"
)

func name(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
}

func join(t *testing.T, entries uint32) (*Group, error) {
	t.Helper()
	return Join(name(t), entries, slog.New(slog.DiscardHandler))
}

// Members that join at the same time get ranges and numbers of their own. There is room
// for as many as there are ranges. The last one that leaves removes everything.
func TestJoinConcurrently(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	var members []*Group
	for range Ranges {
		wait.Go(func() {
			g, err := join(t, 64)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			members = append(members, g)
		})
	}
	wait.Wait()
	ranges, numbers := map[int]bool{}, map[uint16]bool{}
	for _, g := range members {
		ranges[g.seat.index], numbers[g.seat.number] = true, true
	}
	if len(ranges) != Ranges || len(numbers) != Ranges {
		t.Fatalf("ranges %v, numbers %v", ranges, numbers)
	}
	if _, err := join(t, 64); !errors.Is(err, ErrFull) {
		t.Errorf("one more member: %v", err)
	}
	first := members[0]
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	again, err := join(t, 64)
	if err != nil {
		t.Fatal(err)
	}
	if again.seat.index != first.seat.index || numbers[again.seat.number] {
		t.Errorf("a new member has range %d and number %d, left were %d and %d", again.seat.index, again.seat.number, first.seat.index, first.seat.number)
	}
	members[0] = again
	for _, g := range members {
		wait.Go(func() { rig.Check(t, g.Leave()) })
	}
	wait.Wait()
	for _, path := range []string{first.registry.dir, filepath.Join(loader.GroupRoot, name(t))} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left behind: %v", path, err)
		}
	}
}

// A member that joins while the last one leaves is in the group.
func TestJoinWhileLeaving(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				g, err := join(t, 64)
				if err != nil {
					t.Error(err)
					return
				}
				if !held(g.registry.member(g.seat.index)) {
					t.Error("a member is not in the registry")
				}
				rig.Check(t, g.Leave())
			}
		})
	}
	wait.Wait()
}

// The range of a process that is killed is free, and its entries are those of the next one.
func TestKilled(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sitter+"="+name(t))
	in, err := cmd.StdinPipe()
	rig.Must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	rig.Must(t, cmd.Start())
	var index, number int
	if _, err := fmt.Fscan(out, &index, &number); err != nil {
		t.Fatal(err)
	}
	a, err := join(t, 64)
	rig.Must(t, err)
	defer func() { rig.Check(t, a.Leave()) }()
	if a.seat.index == index || a.seat.number == uint16(number) {
		t.Errorf("both processes have range %d, number %d", index, number)
	}
	buried := []int{}
	rig.Must(t, a.registry.bury(a.seat.index, func(i int) { buried = append(buried, i) }))
	if len(buried) != 0 {
		t.Errorf("buried while it runs: %v", buried)
	}
	rig.Must(t, cmd.Process.Kill())
	cmd.Wait()
	if _, _, live := a.registry.read(index); live {
		t.Error("a process that was killed counts as a member")
	}
	rig.Must(t, a.registry.bury(a.seat.index, func(i int) { buried = append(buried, i) }))
	if len(buried) != 1 || buried[0] != index {
		t.Errorf("buried %v, want %d", buried, index)
	}
	b, err := join(t, 64)
	rig.Must(t, err)
	if b.seat.index != index || b.seat.number == uint16(number) {
		t.Errorf("the next process has range %d and number %d, killed was %d and %d", b.seat.index, b.seat.number, index, number)
	}
	rig.Must(t, b.Leave())
}

// All members get the same numbers of protection domains, also after a restart of one.
func TestDomains(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	a, err := join(t, 64)
	rig.Must(t, err)
	defer func() { rig.Check(t, a.Leave()) }()
	b, err := join(t, 64)
	rig.Must(t, err)
	numbers := map[tpt.PD]string{}
	for _, domain := range []string{"one", "two", "three"} {
		x, err := a.Domain(domain)
		rig.Must(t, err)
		y, err := b.Domain(domain)
		rig.Must(t, err)
		if x != y || x&tpt.SharedPD == 0 || numbers[x] != "" {
			t.Errorf("%s: %#x and %#x", domain, x, y)
		}
		numbers[x] = domain
	}
	rig.Must(t, b.Leave())
	b, err = join(t, 64)
	rig.Must(t, err)
	defer func() { rig.Check(t, b.Leave()) }()
	for x, domain := range numbers {
		if y, err := b.Domain(domain); x != y || err != nil {
			t.Errorf("%s was %#x, is %#x, %v", domain, x, y, err)
		}
	}
	if _, err := a.Domain("a/b"); !errors.Is(err, ErrName) {
		t.Errorf("a bad name: %v", err)
	}
}

// A member of other ranges, a directory that others can use, and a state that stag has not
// written are refused.
func TestJoinRefused(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	a, err := join(t, 64)
	rig.Must(t, err)
	if _, err := join(t, 128); err == nil || !strings.Contains(err.Error(), "MaxRegions") {
		t.Errorf("other ranges: %v", err)
	}
	rig.Must(t, os.Chmod(a.registry.dir, 0o755))
	if _, err := join(t, 64); !errors.Is(err, loader.ErrPermission) {
		t.Errorf("a directory of everybody: %v", err)
	}
	rig.Must(t, os.Chmod(a.registry.dir, 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(a.registry.dir, "state"), []byte("next 1\nfoo\n"), 0o600))
	if _, err := join(t, 64); err == nil || !strings.Contains(err.Error(), `"foo"`) {
		t.Errorf("a bad state: %v", err)
	}
	rig.Must(t, a.Leave())
	// A process that cannot join leaves nothing behind.
	if _, err := join(t, 3); err == nil {
		t.Error("a range of three entries")
	}
	if _, err := os.Stat(a.registry.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory is left behind: %v", err)
	}
	// The group begins anew with other ranges.
	a, err = join(t, 128)
	rig.Must(t, err)
	rig.Must(t, a.Leave())
}

// A table of a group whose processes were all killed is used again, or replaced if it has
// another size.
func TestAllKilled(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	for _, entries := range []uint32{64, 64, 128} {
		g, err := join(t, entries)
		rig.Must(t, err)
		if n := len(g.memory.Memory()); n != int(entries)*Ranges*tpt.EntryLen {
			t.Errorf("a table of %d octets", n)
		}
		// The end of the process: nothing is removed.
		rig.Must(t, g.memory.Close())
		rig.Must(t, g.seat.file.Close())
	}
	g, err := join(t, 64)
	rig.Must(t, err)
	rig.Must(t, g.Leave())
}

func TestParseState(t *testing.T) {
	for text, want := range map[string]bool{
		"entries 64\nnext 3\npd 1 a\npd 2 b\n": true,
		"entries 64\nnext 3\n":                 true,
		"":                                     false,
		"next 3\n":                             false,
		"entries 64\nnext 0\n":                 false,
		"entries 64\nnext 3\npd 2 a\n":         false,
		"entries 64\nnext 3\npd 1 ../a\n":      false,
		"entries 64\nnext 3\npd\n":             false,
		"entries 64\nnext 70000\n":             false,
		"entries -1\nnext 3\n":                 false,
		"entries 64\nnext 3\nwhat 1\n":         false,
	} {
		if _, err := parseState(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// member is a whole member: with a table, a heap, and a socket.
type member struct {
	*Group
	table *tpt.Table
	heap  *heap.Heap
}

func newMember(t *testing.T, log io.Writer) *member {
	t.Helper()
	return newNamedMember(t, name(t), log)
}

func newNamedMember(t *testing.T, group string, log io.Writer) *member {
	t.Helper()
	need.Root(t)
	need.XDP(t)
	g, err := Join(group, 1024, slog.New(slog.NewTextHandler(log, nil)))
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, g.Leave()) })
	m := &member{Group: g}
	m.heap, err = heap.NewShared(1 << 20)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, m.heap.Close()) })
	c := tpt.Config{Heap: m.heap.Memory(), Pages: 1024}
	c.Memory, c.Owner, c.Group = g.Table()
	m.table, err = tpt.New(c)
	rig.Must(t, err)
	rig.Must(t, g.Start(m.table, m.heap))
	t.Cleanup(func() { rig.Check(t, g.Stop()) })
	pd, err := g.Domain("pool")
	rig.Must(t, err)
	rig.Must(t, m.table.JoinPD(pd))
	return m
}

const pool = tpt.SharedPD | 1

const rights = tpt.LocalWrite | tpt.RemoteRead | tpt.RemoteWrite

// region registers n octets of the heap.
func (m *member) region(t *testing.T, n int) ([]byte, tpt.STag) {
	t.Helper()
	mem, part, err := m.heap.Alloc(uint64(n))
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, part.Release()) })
	s, err := m.table.Register(tpt.Region{PD: pool, Memory: mem, Rights: rights})
	rig.Must(t, err)
	return mem, s
}

// resolve resolves s, and returns the answer.
func (m *member) resolve(s tpt.STag) bool {
	c := make(chan bool)
	m.Resolve(s, func(there bool) { c <- there })
	return <-c
}
