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

// traces has everything that the command could leave behind: BPF programs of the guest, files in mounts that only this
// test has, and interfaces of the namespace in which the command was started.
type traces struct {
	programs int
	claims   int
	pins     int
	links    string
}

// tracesOf returns the traces that exist now, in the namespace of the calling thread.
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

// programs returns how many BPF programs of the guest the kernel has.
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
			continue // the program was freed meanwhile
		}
		rig.Must(t, err)
		info, err := p.Info()
		rig.Must(t, errors.Join(err, p.Close()))
		if uid, ok := info.CreatedByUID(); ok && uid == guest {
			n++
		}
	}
}

// in reports whether before has every trace of now. now may have fewer, because commands remove what killed commands
// have left.
func (now traces) in(before traces) bool {
	return now.programs <= before.programs && now.claims <= before.claims && now.pins <= before.pins && now.links == before.links
}

// gone waits until there are no other traces than before. The kernel frees programs a little after their process ends.
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

// clearClaims removes the claims that a killed process left.
func clearClaims(t *testing.T) {
	t.Helper()
	list, err := os.ReadDir(loader.RuntimeDir)
	rig.Must(t, err)
	for _, f := range list {
		rig.Must(t, os.Remove(filepath.Join(loader.RuntimeDir, f.Name())))
	}
}

// ownSockets gives the commands of this test a directory of their own for control sockets, with a name short enough
// for a socket address.
func ownSockets(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	rig.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
}
