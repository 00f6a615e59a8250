package doctor

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/undo"
)

// triedLinux is the kernel series that stag is developed and tested on.
const triedLinux = "6.18"

// linuxVersion returns the version of the running kernel, or zeros if the release is
// not a number.
func linuxVersion() (major, minor int) { return versionOf(linuxRelease()) }

func versionOf(release string) (major, minor int) {
	fmt.Sscanf(release, "%d.%d", &major, &minor)
	return major, minor
}

func linuxRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// probeLinux compares version numbers. It never reports Bad, because the other probes
// try each feature.
func probeLinux() Probe {
	const name = "Linux"
	return tried(name, linuxRelease())
}

func tried(name, release string) Probe {
	major, minor := versionOf(release)
	switch {
	case major == 0:
		return unknown(name, "uname -r", "%q, from which the version cannot be told; stag is made for 5.18 and later", release)
	case major < 5 || major == 5 && minor < 18:
		return hint(name, "use Linux 5.18 or later", "%s, and stag is made for 5.18 and later", release)
	case fmt.Sprintf("%d.%d", major, minor) != triedLinux:
		return hint(name, "stag demo: it tries everything on a veth pair of its own", "%s, and stag was tried on %s only", release, triedLinux)
	}
	return ok(name, "%s, of the series that stag was tried on", release)
}

// probeProgram makes the kernel verify the steering program itself.
func probeProgram() Probe {
	const name = "XDP program"
	err := loader.TryProgram()
	switch {
	case errors.Is(err, loader.ErrPermission):
		return bad(name, "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", "%v", err).wants(loadCaps...)
	case err != nil:
		return bad(name, "use Linux 5.18 or later, with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS", "the kernel does not take it: %v", err)
	}
	return ok(name, "the kernel takes the steering program")
}

func probeSocket() Probe {
	const name = "AF_XDP socket"
	fd, err := xdpSocket()
	switch {
	case errors.Is(err, unix.EPERM):
		return bad(name, "run as root, or with CAP_NET_RAW", "not permitted").wants(capNetRaw)
	case err != nil:
		return bad(name, "use a kernel with CONFIG_XDP_SOCKETS=y", "the kernel has none: %v", err)
	}
	unix.Close(fd)
	return ok(name, "can be made")
}

func xdpSocket() (int, error) {
	return unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
}

// probeSocketMap puts a socket into an XSKMAP.
func probeSocketMap() Probe {
	const name = "XSKMAP"
	fix := "use a kernel with CONFIG_XDP_SOCKETS=y, as root or with CAP_BPF and CAP_NET_RAW"
	fd, err := loader.LaneSocket()
	if err != nil {
		return bad(name, fix, "cannot %v", err).wants(capNetRaw, capBPF)
	}
	defer unix.Close(fd)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: bpf.MapSocks, Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return bad(name, fix, "cannot be made: %v", err).wants(capBPF)
	}
	defer m.Close()
	if err := m.Put(uint32(0), uint32(fd)); err != nil {
		return bad(name, fix, "takes no socket: %v", err)
	}
	return ok(name, "takes a socket")
}

// oldBudget is how many frames one system call sends on kernels without
// XDP_MAX_TX_SKB_BUDGET.
const oldBudget = 32

// probeBudget checks for XDP_MAX_TX_SKB_BUDGET. Without this option, sending a batch
// needs several system calls.
func probeBudget() Probe {
	const name = "transmit budget"
	fd, err := xdpSocket()
	if err != nil {
		return untried(name, []string{capNetRaw}, err)
	}
	defer unix.Close(fd)
	// The kernel compares the option with the size of the ring, so the ring must exist.
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_TX_RING, 2*oldBudget); err != nil {
		return bad(name, "use a kernel with CONFIG_XDP_SOCKETS=y", "no ring to transmit with: %v", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, 2*oldBudget); err != nil {
		return hint(name, "use Linux 6.17 or later, for speed", "in copy mode one call sends at most %d frames: %v", oldBudget, err)
	}
	return ok(name, "one call sends a whole ring")
}

// repairOffNoProbe is a value of the option TCP_REPAIR (include/uapi/linux/tcp.h).
const repairOffNoProbe = -1

// probeRepair puts one end of a loopback connection into repair mode and back.
func probeRepair() Probe {
	const name = "TCP_REPAIR"
	fd, closeAll, err := loopbackConnection()
	if err != nil {
		return bad(name, "ip link set lo up", "no connection over the loopback to try with: %v", err)
	}
	defer closeAll()
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, repairOffNoProbe)
	}
	switch {
	case errors.Is(err, unix.EPERM):
		return bad(name, "run as root, or with CAP_NET_ADMIN in the user namespace that owns the network namespace", "not permitted").wants(capNetAdmin)
	case err != nil:
		return bad(name, "use Linux 4.20 or later", "the kernel has it not: %v", err)
	}
	return ok(name, "a connection over the loopback went into repair mode and back")
}

// loopbackConnection connects this process to itself over the loopback. It returns the
// connecting end.
func loopbackConnection() (fd int, closeAll func() error, err error) {
	var steps undo.Stack
	defer func() {
		if err != nil {
			steps.Run()
		}
	}()
	socket := func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			steps.Add(func() error { return unix.Close(fd) })
		}
		return fd, err
	}
	listener, err := socket()
	if err != nil {
		return 0, nil, err
	}
	if err = unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, nil, err
	}
	if err = unix.Listen(listener, 1); err != nil {
		return 0, nil, err
	}
	at, err := unix.Getsockname(listener)
	if err != nil {
		return 0, nil, err
	}
	if fd, err = socket(); err != nil {
		return 0, nil, err
	}
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return 0, nil, err
	}
	if err = unix.Connect(fd, at); err != nil {
		return 0, nil, err
	}
	return fd, steps.Run, nil
}

// These are commands of membarrier(2).
const (
	membarrierQuery  = 0
	membarrierGlobal = 1
)

func probeMembarrier() Probe {
	const name = "membarrier"
	fix := "use a kernel with CONFIG_MEMBARRIER=y, and without nohz_full="
	commands, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0)
	if errno != 0 {
		return bad(name, fix, "the kernel has it not: %v", errno)
	}
	if commands&membarrierGlobal == 0 {
		return bad(name, fix, "the kernel has no global barrier")
	}
	return ok(name, "has a global barrier")
}
