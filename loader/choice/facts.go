package choice

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/netdev"
)

// Answer is what is known of a property.
type Answer uint8

const (
	Unknown Answer = iota
	No
	Yes
)

// Rights are the facts about the process.
type Rights struct {
	Lacks     []string // capabilities that AF_XDP needs and the process lacks
	Contained bool     // the process is in a user namespace of its own
	Locks     uint64   // octets that the process may lock
	Needs     uint64   // octets of the frames of all queues
}

// Port are the facts about an interface.
type Port struct {
	Name, Driver string
	Queues       int    // receive queues, each with frames of its own
	Loaded       string // mode of stag's program, if it was loaded to stay: "native", "generic" or ""
	Taken        string // why no program of stag can be used now; "": it can
	Native       Answer // the driver runs programs in native mode
	ZeroCopy     Answer // the driver has zero copy
	MTU          int    // MTU in octets
	MaxMTU       int    // largest MTU with a program in native mode; 0: not known
}

// Modes of a program.
const (
	native  = "native"
	generic = "generic"
)

// firstUserSpace is the inode number of the initial user namespace
// (include/linux/proc_ns.h). BPF programs belong to it.
const firstUserSpace = 0xEFFFFFFD

// LookRights looks at the rights of the calling OS thread. needs is the size of the frames.
func LookRights(needs uint64) Rights {
	r := Rights{Lacks: loader.Lacking("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), Locks: unix.RLIM_INFINITY, Needs: needs}
	var space unix.Stat_t
	r.Contained = unix.Stat("/proc/self/ns/user", &space) == nil && space.Ino != firstUserSpace
	var limit unix.Rlimit
	if len(loader.Lacking("CAP_IPC_LOCK")) > 0 && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		r.Locks = limit.Cur
	}
	return r
}

// LookPort looks at the interface called name, in the network namespace of n and of the
// calling OS thread.
func LookPort(n *loader.Net, name string) (Port, error) {
	l, err := n.LookupLink(name)
	if err != nil {
		return Port{}, err
	}
	facts := l.Facts()
	p := Port{Name: name, Driver: l.Driver, Queues: l.RxQueues, MTU: l.PortMTU, MaxMTU: facts.MTU}
	p.Native, p.ZeroCopy = abilities(l)
	hook, err := n.Hook(l)
	if err != nil {
		return Port{}, err
	}
	if hook.Usable != nil {
		p.Taken = hook.Usable.Error()
	}
	if hook.Pinned {
		p.Loaded = hook.Mode.String()
		if owner, found := loader.PortOwner(l); found && owner.PID != os.Getpid() {
			p.Taken = fmt.Sprintf("%s is in use by %s", l.Port, owner)
		}
	}
	return p, nil
}

// abilities asks the kernel what the driver can do. Before Linux 6.3 the kernel does not
// tell, and the table of drivers does.
func abilities(l loader.Link) (native, zeroCopy Answer) {
	if f, err := netdev.FeaturesOf(l.PortIndex); err == nil {
		return told(f&netdev.Native != 0), told(f&netdev.ZeroCopy != 0)
	}
	facts := l.Facts()
	if facts.Metadata || facts.ZeroCopy || facts.MTU != 0 {
		native = Yes
	}
	if facts.ZeroCopy {
		zeroCopy = Yes
	}
	return native, zeroCopy
}

func told(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// obstacle says why the process cannot use AF_XDP. It returns "" if the process can.
func (r Rights) obstacle() string {
	switch {
	case len(r.Lacks) > 0:
		return fmt.Sprintf("AF_XDP needs %s, which this process lacks: run as root for it", strings.Join(r.Lacks, ", "))
	case r.Contained:
		return "AF_XDP needs the first user namespace, and this process is in another: run it in the host's for AF_XDP"
	case r.Locks < r.Needs:
		return fmt.Sprintf("AF_XDP locks %d KiB, and this process may lock %d KiB: ulimit -l %d, or CAP_IPC_LOCK, for it", r.Needs>>10, r.Locks>>10, r.Needs>>10)
	}
	return ""
}

// mode returns the mode in which a program of stag would run.
func (p *Port) mode(asked bool) string {
	switch {
	case p.Loaded != "":
		return p.Loaded
	case asked:
		return generic
	}
	return native
}

// obstacle says why AF_XDP cannot be used on the port, or should not. It returns "" if it
// can. asked says that generic mode is asked for.
func (p *Port) obstacle(asked bool) string {
	switch {
	case p.Taken != "":
		return p.Taken
	case p.mode(asked) == generic:
		return fmt.Sprintf("%s: XDP in generic mode copies each packet once more, and is for tests", p.Name)
	case p.Loaded != "":
		return ""
	case p.Native == No:
		return fmt.Sprintf("%s: %s has no native XDP", p.Name, p.driver())
	case p.Native == Unknown:
		return fmt.Sprintf("%s: nobody tells whether %s has native XDP (Linux 6.3 does); to try it, ask for AF_XDP by name", p.Name, p.driver())
	case p.MaxMTU != 0 && p.MTU > p.MaxMTU:
		return fmt.Sprintf("%s: MTU %d, and %s takes XDP up to about %d: ip link set %s mtu %d, at both ends, for AF_XDP", p.Name, p.MTU, p.driver(), p.MaxMTU, p.Name, p.MaxMTU)
	}
	return ""
}

// driver returns a name for the driver.
func (p *Port) driver() string {
	if p.Driver == "" {
		return "the driver of " + p.Name
	}
	return "driver " + p.Driver
}

// noZeroCopy says why packets are copied. off says that zero copy is not wanted.
func (p *Port) noZeroCopy(off bool) string {
	switch {
	case off:
		return "zero copy is turned off"
	case p.ZeroCopy == Unknown:
		return p.driver() + " is not known to have zero copy"
	}
	return p.driver() + " has no zero copy"
}
