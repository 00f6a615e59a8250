package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/netdev"
)

func probeQueues(l loader.Link, engines int) Probe {
	const name = "queues"
	if l.RxQueues == engines {
		return ok(name, "%d to receive with, an engine for each", l.RxQueues)
	}
	return bad(name, setQueues(l, engines), "receive queues %d, engines %d: packets of a queue without an engine would be lost",
		l.RxQueues, engines)
}

func setQueues(l loader.Link, n int) string {
	facts := l.Facts()
	switch {
	case facts.QueuesApart && facts.Pair:
		return fmt.Sprintf("ethtool -L %s rx %d, and tx %d on its peer", l.Port, n, n)
	case facts.QueuesApart:
		return fmt.Sprintf("ethtool -L %s rx %d tx %d", l.Port, n, n)
	}
	return fmt.Sprintf("ethtool -L %s combined %d", l.Port, n)
}

// tellsSockets reports whether the kernel is new enough to report the AF_XDP sockets of
// queues. An answer without sockets does not show this, so tellsSockets compares
// versions.
func tellsSockets() bool {
	major, minor := linuxVersion()
	return major > 6 || major == 6 && minor >= 14
}

// probeSockets looks for queues that have an AF_XDP socket already. bind(2) on such a
// queue fails with EBUSY.
func probeSockets(l loader.Link, there netlink.LinkXdp) Probe {
	const name = "queue sockets"
	taken, err := netdev.SocketQueues(l.PortIndex)
	if err != nil || len(taken) == 0 && !tellsSockets() {
		taken, err = bindQueues(l, there.Attached)
	}
	if err != nil {
		return unknown(name, "use Linux 6.14 or later, which says it, or run as root, with nothing on the hook, to have it tried",
			"which queues have an AF_XDP socket cannot be told: %v", err).wants(capNetRaw)
	}
	var foreign, mine []int
	for _, q := range taken {
		if _, found := loader.QueueOwner(l, q); found {
			mine = append(mine, q)
		} else {
			foreign = append(foreign, q)
		}
	}
	switch {
	case len(foreign) > 0:
		return foreignSocket(name, l, foreign)
	case len(mine) > 0 && len(mine) < l.RxQueues && there.Attached:
		return hint(name, fmt.Sprintf("restart the stag that is on %s: it opened fewer queues than there are now", l.Port),
			"of %d queues only %s have one: steered packets of the others are dropped", l.RxQueues, numbers(mine))
	case len(mine) > 0:
		return ok(name, "stag's, on queue %s", numbers(mine))
	}
	return ok(name, "none: all queues are free")
}

func foreignSocket(name string, l loader.Link, queues []int) Probe {
	holders, whole := socketHolders()
	fix := "end the process that has an AF_XDP socket: "
	switch {
	case len(holders) > 0:
		fix += strings.Join(holders, ", or ")
	case whole:
		fix += "none that can be seen here has one; a container's, perhaps"
	default:
		return bad(name, fix+"as root this row names it", "queue %s of %s has one already", numbers(queues), l.Port).wants(capSysAdmin)
	}
	return bad(name, fix, "queue %s of %s has one already", numbers(queues), l.Port)
}

func numbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

// socketHolders names the processes that have AF_XDP sockets in this network namespace.
// It cannot tell the interface of a socket. whole is false if the descriptors of some
// process cannot be read.
func socketHolders() (holders []string, whole bool) {
	here, err := os.Stat(threadSpace)
	if err != nil {
		return nil, false
	}
	whole = true
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		files, err := os.ReadDir(filepath.Join(p, "fd"))
		if errors.Is(err, os.ErrPermission) {
			whole = false
		}
		holds := func(f os.DirEntry) bool {
			return isXDPSocket(filepath.Join(p, "fd", f.Name())) && mayBeOf(here, filepath.Base(p), f.Name())
		}
		if slices.ContainsFunc(files, holds) {
			name, _ := os.ReadFile(filepath.Join(p, "comm"))
			holders = append(holders, fmt.Sprintf("pid %s (%s)", filepath.Base(p), strings.TrimSpace(string(name))))
		}
	}
	return holders, whole
}

// isXDPSocket reports whether the open file at path is an AF_XDP socket.
func isXDPSocket(path string) bool {
	var protocol [8]byte
	n, err := unix.Getxattr(path, "system.sockprotoname", protocol[:])
	return err == nil && unix.ByteSliceToString(protocol[:n]) == "XDP"
}

// mayBeOf reports whether a socket of another process may belong to the network
// namespace whose file is here. It returns true if the kernel does not let this process
// check. During the check this process has a duplicate of the socket.
func mayBeOf(here os.FileInfo, pid, fd string) bool {
	process, err1 := strconv.Atoi(pid)
	number, err2 := strconv.Atoi(fd)
	pidfd, err3 := unix.PidfdOpen(process, 0)
	if errors.Join(err1, err2, err3) != nil {
		return true
	}
	defer unix.Close(pidfd)
	socket, err := unix.PidfdGetfd(pidfd, number, 0)
	if err != nil {
		return true
	}
	defer unix.Close(socket)
	fdOfSpace, err := unix.IoctlRetInt(socket, unix.SIOCGSKNS)
	if err != nil {
		return true
	}
	space := os.NewFile(uintptr(fdOfSpace), "network namespace")
	defer space.Close()
	its, err := space.Stat()
	return err != nil || os.SameFile(here, its)
}

// probeLost reads how many packets stag's program on the hook has dropped because a
// queue had no socket.
func probeLost(there netlink.LinkXdp) Probe {
	const name = "packets without a socket"
	if !there.Attached {
		return ok(name, "no program yet that could have dropped any")
	}
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(there.ProgId))
	if err != nil {
		return untried(name, []string{capSysAdmin}, err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return untried(name, []string{capSysAdmin}, err)
	}
	if info.Name != bpf.Program {
		return ok(name, "the program on the hook is not stag's")
	}
	lost, err := countNoSocket(info)
	switch {
	case err != nil:
		return untried(name, []string{capSysAdmin}, err)
	case lost > 0:
		return hint(name, "give every receive queue an engine; after a crash, open the interface again or stag unload",
			"packets of taken-over connections that came to a queue without one: %d", lost)
	}
	return ok(name, "none")
}

// countNoSocket returns the sum over all processors of the program's NoSocket counter.
// It finds the map through the program, because a private program has no pins.
func countNoSocket(info *ebpf.ProgramInfo) (sum uint64, err error) {
	maps, _ := info.MapIDs()
	for _, id := range maps {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return 0, err
		}
		defer m.Close()
		about, err := m.Info()
		if err != nil {
			return 0, err
		}
		if about.Name != bpf.MapStats {
			continue
		}
		var per []uint64
		if err := m.Lookup(uint32(bpf.NoSocket), &per); err != nil {
			return 0, err
		}
		for _, n := range per {
			sum += n
		}
		return sum, nil
	}
	return 0, errors.New("the program has no counters")
}

// probeSpread checks that the NIC spreads packets over all queues. The engine of a
// queue without packets has nothing to do.
func (v *view) probeSpread(l loader.Link) Probe {
	const name = "spread"
	if l.RxQueues < 2 {
		return ok(name, "one queue: nothing to spread")
	}
	table, err := v.net.SpreadTable(l)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return ok(name, "the driver has no table to be read (%v)", err)
	case err != nil:
		return unknown(name, "ethtool -x "+l.Port, "the table cannot be read: %v", err)
	}
	return spreadOver(name, l, table)
}

// spreadOver returns the row for the NIC's indirection table.
func spreadOver(name string, l loader.Link, table []uint32) Probe {
	reached := map[uint32]bool{}
	for _, q := range table {
		reached[q] = true
	}
	if len(reached) < l.RxQueues {
		return hint(name, fmt.Sprintf("ethtool -X %s equal %d", l.Port, l.RxQueues), "packets come to %d of %d queues: the others' engines have nothing to do", len(reached), l.RxQueues)
	}
	return ok(name, "over all %d queues", l.RxQueues)
}

// probeRules checks for rules of the NIC. A rule sends packets to a queue that the
// indirection table does not choose, or drops them.
func (v *view) probeRules(l loader.Link) Probe {
	const name = "card's rules"
	count, err := v.net.FlowRules(l)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return ok(name, "the driver has none (%v)", err)
	case err != nil:
		return unknown(name, "ethtool -n "+l.Port, "cannot be counted: %v", err)
	}
	if count > 0 {
		return hint(name, "ethtool -n "+l.Port+": do they concern stag's ports?", "rules that direct packets to queues of their choice, or drop them: %d", count)
	}
	return ok(name, "none")
}

// probeMAC checks that the NIC accepts packets for the interface's MAC address.
func (v *view) probeMAC(l loader.Link) Probe {
	const name = "MAC address"
	port, err := v.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return unknown(name, "look at "+l.Port+" again", "%v", err)
	}
	return takes(name, l, port.Attrs())
}

// takes compares the interface's MAC address with that of its port.
func takes(name string, l loader.Link, at *netlink.LinkAttrs) Probe {
	promiscuous := at.Promisc > 0
	if l.MAC.String() != at.HardwareAddr.String() && !promiscuous {
		return hint(name, fmt.Sprintf("ip link set %s address %s, or ip link set %s promisc on", l.Name, at.HardwareAddr, l.Port),
			"%s has %s, and %s takes what is for %s", l.Name, l.MAC, l.Port, at.HardwareAddr)
	}
	if promiscuous {
		return ok(name, "%s; promiscuous: what is for others comes, too, and goes to the kernel", l.MAC)
	}
	return ok(name, "%s, and nothing that is for others", l.MAC)
}
