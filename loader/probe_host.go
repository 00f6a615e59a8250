package loader

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

func probeCapabilities() Probe {
	const name = "capabilities"
	all := []capability{capNetAdmin, capNetRaw, capBPF}
	if lack := lacking(all); len(lack) > 0 {
		return bad(name, "run as root, or grant them: setcap "+strings.ToLower(strings.Join(lack, ","))+"+ep on the stag binary",
			"%s missing", strings.Join(lack, ", "))
	}
	return ok(name, "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF")
}

// probeMemlock compares the limit on locked memory with what frames take. The
// limit does not count for whoever has CAP_IPC_LOCK.
func probeMemlock(needed uint64) Probe {
	const name = "locked memory"
	if len(lacking([]capability{capIPCLock})) == 0 {
		return ok(name, "no limit, by CAP_IPC_LOCK")
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return bad(name, "grant CAP_IPC_LOCK", "the limit cannot be read: %v", err)
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return ok(name, "no limit")
	}
	if limit.Cur < needed {
		return bad(name, fmt.Sprintf("ulimit -l %d, LimitMEMLOCK= in the systemd unit, or grant CAP_IPC_LOCK", needed>>10),
			"%d KiB allowed, %d KiB needed", limit.Cur>>10, needed>>10)
	}
	return ok(name, "%d KiB allowed, %d KiB needed", limit.Cur>>10, needed>>10)
}

// bpffsRoot is where a BPF file system is looked for.
const bpffsRoot = "/sys/fs/bpf"

func probeBPFFS() Probe {
	const name = "BPF file system"
	if err := onBPFFS(bpffsRoot); err != nil {
		p := ok(name, "none at %s, which matters only for programs that stay when their process ends", bpffsRoot)
		p.Fix = "mount -t bpf bpf " + bpffsRoot
		return p
	}
	return ok(name, "mounted at %s", bpffsRoot)
}

func probeRuntimeDir() Probe {
	const name = "runtime directory"
	err := os.MkdirAll(RuntimeDir, 0o755)
	if err == nil {
		err = unix.Access(RuntimeDir, unix.W_OK)
	}
	if err != nil {
		return bad(name, fmt.Sprintf("install -d -o %d %s as root", os.Getuid(), RuntimeDir), "%s cannot be written to: %v", RuntimeDir, err)
	}
	return ok(name, "%s", RuntimeDir)
}

// probeProgram has the kernel verify the steering program itself.
func probeProgram() Probe {
	const name = "XDP program"
	s := &Steering{}
	defer s.undo.run()
	prog, err := s.create(Options{MaxFlows: 1, Queues: 1})
	if err != nil {
		err = s.explainCreate(err)
		if errors.Is(err, ErrPermission) {
			return bad(name, "run as root, or with CAP_BPF and CAP_NET_ADMIN", "%v", err)
		}
		return bad(name, "use Linux 5.18 or later, with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS", "the kernel does not take it: %v", err)
	}
	prog.Close()
	return ok(name, "the kernel takes the steering program")
}

func probeSocket() Probe {
	const name = "AF_XDP socket"
	fd, err := xdpSocket()
	switch {
	case errors.Is(err, unix.EPERM):
		return bad(name, "run as root, or with CAP_NET_RAW", "not permitted")
	case err != nil:
		return bad(name, "use a kernel with CONFIG_XDP_SOCKETS=y", "the kernel has none: %v", err)
	}
	unix.Close(fd)
	return ok(name, "can be made")
}

func xdpSocket() (int, error) {
	return unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
}

// probeSocketMap puts a socket where the program would find it.
func probeSocketMap() Probe {
	const name = "XSKMAP"
	fix := "use a kernel with CONFIG_XDP_SOCKETS=y, as root or with CAP_BPF and CAP_NET_RAW"
	fd, err := xdpSocket()
	if err != nil {
		return bad(name, fix, "no AF_XDP socket to put into it: %v", err)
	}
	defer unix.Close(fd)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: bpf.MapSocks, Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return bad(name, fix, "cannot be made: %v", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), uint32(fd)); err != nil {
		return bad(name, fix, "takes no socket: %v", err)
	}
	return ok(name, "takes a socket")
}

// The values of option TCP_REPAIR besides 1 (include/uapi/linux/tcp.h).
const repairOffNoProbe = -1

// probeRepair puts one end of a connection over the loopback into repair mode
// and takes it out again.
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
		return bad(name, "run as root, or with CAP_NET_ADMIN in the user namespace that owns the network namespace", "not permitted")
	case err != nil:
		return bad(name, "use Linux 4.20 or later", "the kernel has it not: %v", err)
	}
	return ok(name, "a connection over the loopback went into repair mode and back")
}

// loopbackConnection is the dialling end of a connection that this process has
// with itself.
func loopbackConnection() (fd int, closeAll func() error, err error) {
	var undo undo
	defer func() {
		if err != nil {
			undo.run()
		}
	}()
	socket := func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			undo.add(func() error { return unix.Close(fd) })
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
	return fd, undo.run, nil
}

// Commands of membarrier(2).
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
