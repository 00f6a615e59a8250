package loader

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"

	"github.com/stag-rdma/stag/bpf"
)

// finder looks for interfaces in every network namespace that has a name or a
// process and may be entered.
type finder struct {
	spaces []namedSpace // the calling thread's first
}

// namedSpace is a network namespace and what people call it.
type namedSpace struct {
	*Namespace
	name string // "" for the calling thread's
}

// whereabouts is where a program is attached.
type whereabouts struct {
	cookie uint64
	index  int
	name   string // of the interface
	space  string
	mode   Mode
	within *Namespace // the finder's
}

// namedSpaces is where `ip netns` keeps the names.
const namedSpaces = "/run/netns"

// newFinder finds the namespaces. Those that cannot be looked at are left out.
func newFinder() *finder {
	f := &finder{}
	f.add(threadSpace, "")
	named, _ := filepath.Glob(filepath.Join(namedSpaces, "*"))
	for _, path := range named {
		f.add(path, "network namespace "+filepath.Base(path))
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	slices.SortFunc(processes, func(a, b string) int { return pidIn(a) - pidIn(b) })
	for _, path := range processes {
		f.add(path, fmt.Sprintf("the network namespace of pid %d", pidIn(path)))
	}
	return f
}

// pidIn reads the pid in a path below /proc.
func pidIn(path string) (pid int) {
	fmt.Sscanf(strings.TrimPrefix(path, "/proc/"), "%d", &pid)
	return pid
}

// add takes a namespace in, unless it is there already. The identity that the
// path's target has is compared before anything is opened.
func (f *finder) add(path, name string) {
	st, err := os.Stat(path)
	if err != nil {
		return
	}
	for _, known := range f.spaces {
		if known.same(st) {
			return
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return
	}
	space := &Namespace{f: file}
	if space.dev, space.ino, err = identity(file); err != nil {
		file.Close()
		return
	}
	f.spaces = append(f.spaces, namedSpace{space, name})
}

func (f *finder) close() {
	for _, s := range f.spaces {
		s.Close()
	}
}

// search opens one namespace after the other until look has found what it looks
// for. A namespace that cannot be opened is passed over.
func (f *finder) search(look func(s namedSpace, n *Net) (found bool)) {
	for _, s := range f.spaces {
		found := false
		s.Do(func() error {
			n, err := Open()
			if err != nil {
				return err
			}
			defer n.Close()
			found = look(s, n)
			return nil
		})
		if found {
			return
		}
	}
}

// find looks for the interface of that index with that program on it.
func (f *finder) find(index int, program uint32) (at whereabouts, found bool) {
	f.search(func(s namedSpace, n *Net) bool {
		xdp, name, err := n.programOn(index)
		if err != nil || xdp.ProgId != program {
			return false
		}
		at = whereabouts{cookie: n.cookie, index: index, name: name, space: s.name, within: s.Namespace}
		if xdp.AttachMode == nl.XDP_ATTACHED_SKB {
			at.mode = Generic
		}
		found = true
		return true
	})
	return at, found
}

// cookie is the namespace of that cookie, nil where it cannot be found.
func (f *finder) cookie(cookie uint64) (found *Namespace) {
	f.search(func(s namedSpace, n *Net) bool {
		if n.cookie == cookie {
			found = s.Namespace
		}
		return found != nil
	})
	return found
}

// steers reports whether stag's program is on the port, pinned or not.
func (f *finder) steers(l Link) (on bool) {
	space := f.cookie(l.Netns)
	if space == nil {
		return false
	}
	space.Do(func() error {
		n, err := Open()
		if err != nil {
			return err
		}
		defer n.Close()
		xdp, _, err := n.programOn(l.PortIndex)
		on = err == nil && xdp.Attached && ProgramName(ebpf.ProgramID(xdp.ProgId)) == bpf.Program
		return err
	})
	return on
}
