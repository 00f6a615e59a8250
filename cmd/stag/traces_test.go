package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// traces is everything by which the command could leave something behind: of
// programs, the guest's; of files, those in mounts that only this test has; of
// interfaces, those of the namespace that it was started in.
type traces struct {
	programs int
	claims   int
	pins     int
	links    string
}

// tracesOf is what there is now, in the namespace of the calling thread.
func tracesOf(t *testing.T) traces {
	t.Helper()
	need.Root(t)
	need.XDP(t)
	links, err := netlink.LinkList()
	rig.Must(t, err)
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return traces{programs(t), files(t, loader.RuntimeDir), files(t, "/sys/fs/bpf"), strings.Join(names, " ")}
}

func files(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	rig.Must(t, err)
	return len(list)
}

// programs is how many BPF programs of the guest the kernel has.
func programs(t *testing.T) (n int) {
	t.Helper()
	id := ebpf.ProgramID(0)
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return n
		}
		rig.Must(t, err)
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue // gone meanwhile
		}
		rig.Must(t, err)
		info, err := p.Info()
		rig.Must(t, errors.Join(err, p.Close()))
		if uid, ok := info.CreatedByUID(); ok && uid == guest {
			n++
		}
	}
}

// in reports whether nothing is there that was not before. There may be less:
// commands sweep what killed ones have left.
func (now traces) in(before traces) bool {
	return now.programs <= before.programs && now.claims <= before.claims && now.pins <= before.pins && now.links == before.links
}

// gone waits until everything is as it was before: the kernel frees programs a
// little after their process.
func (before traces) gone(t *testing.T) {
	t.Helper()
	var now traces
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now = tracesOf(t); now.in(before) {
			return
		}
	}
	t.Errorf("left behind: %v, and before %v", now, before)
}

func (x traces) String() string {
	return fmt.Sprintf("%d programs, %d claims, %d pins, interfaces %s", x.programs, x.claims, x.pins, x.links)
}

// clearClaims removes what a killed process could not.
func clearClaims(t *testing.T) {
	t.Helper()
	list, err := os.ReadDir(loader.RuntimeDir)
	rig.Must(t, err)
	for _, f := range list {
		rig.Must(t, os.Remove(filepath.Join(loader.RuntimeDir, f.Name())))
	}
}

// ownSockets gives the commands that the test starts a directory of its own for
// control sockets, with a name short enough for one.
func ownSockets(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	rig.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
}
