package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// traces are the objects that the benchmark could leave behind: claims and pins in the
// test's own mounts, and interfaces in the namespace where the benchmark started.
type traces struct {
	claims, pins int
	links        string
}

// tracesOf returns the present traces, in the namespace of the calling thread.
func tracesOf(t *testing.T) traces {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	need.XDP(t)
	links, err := netlink.LinkList()
	rig.Must(t, err)
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return traces{files(t, loader.RuntimeDir), files(t, "/sys/fs/bpf"), strings.Join(names, " ")}
}

func files(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	rig.Must(t, err)
	return len(list)
}

// gone waits until the traces are as before. The kernel removes pins and interfaces a
// little after their process has ended.
func (before traces) gone(t *testing.T) {
	t.Helper()
	var now traces
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now = tracesOf(t); now == before {
			return
		}
	}
	t.Errorf("left behind: %+v, and before %+v", now, before)
}
