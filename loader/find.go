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

// finder looks for interfaces in every network namespace that can be entered and has a
// name or a process.
type finder struct {
	spaces []namedSpace // the first is that of the calling thread
}

// namedSpace is a network namespace with its name.
type namedSpace struct {
	*Namespace
	name string // "" for the calling thread's namespace
}

// whereabouts is the place where a program is attached.
type whereabouts struct {
	cookie uint64
	index  int
	name   string // the interface's name
	space  string
	mode   Mode
	within *Namespace // the namespace of the interface; the finder closes it
}

// namedSpaces is the directory in which `ip netns` keeps the names.
const namedSpaces = "/run/netns"

// newFinder finds the namespaces. It leaves out namespaces that this process may not
// look at.
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

// pidIn parses the pid in a path below /proc.
func pidIn(path string) (pid int) {
	fmt.Sscanf(strings.TrimPrefix(path, "/proc/"), "%d", &pid)
	return pid
}

// add adds the namespace at path to f.spaces unless it is there already. Before it
// opens the file, add compares the identity of the path's target with those of
// f.spaces.
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

// search opens one namespace after the other until look returns true. search skips a
// namespace that cannot be opened.
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

// find looks for an interface with this index and this program.
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

// cookie returns the namespace with this cookie, or nil if it cannot be found.
func (f *finder) cookie(cookie uint64) (found *Namespace) {
	f.search(func(s namedSpace, n *Net) bool {
		if n.cookie == cookie {
			found = s.Namespace
		}
		return found != nil
	})
	return found
}

// steers reports whether stag's program is on l's port, pinned or private. steers also
// returns true if the program on the port cannot be identified.
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
		if err != nil || !xdp.Attached {
			return err
		}
		name, err := ProgramName(ebpf.ProgramID(xdp.ProgId))
		on = err != nil || name == bpf.Program
		return nil
	})
	return on
}
