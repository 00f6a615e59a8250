package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// loadCaps are the capabilities that loading the program needs. engineCaps are those
// that an engine needs.
var (
	loadCaps   = []string{capBPF, capNetAdmin}
	engineCaps = []string{capNetAdmin, capNetRaw, capBPF}
)

func probeCapabilities() Probe {
	const name = "capabilities"
	if lack := loader.Lacking(engineCaps...); len(lack) > 0 {
		// The command names all capabilities, because setcap removes those that it does
		// not name.
		all := strings.ToLower(strings.Join(loader.AdapterCaps(), ","))
		return bad(name, "run as root, or grant them: setcap "+all+"+ep on the stag binary",
			"%s missing", strings.Join(lack, ", ")).wants(engineCaps...)
	}
	return ok(name, "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF")
}

// probeMemlock compares the limit on locked memory with the size of the frames. A
// process with CAP_IPC_LOCK has no limit.
func probeMemlock(needed uint64) Probe {
	const name = "locked memory"
	if len(loader.Lacking(capIPCLock)) == 0 {
		return ok(name, "no limit, by CAP_IPC_LOCK")
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return unknown(name, "grant CAP_IPC_LOCK", "the limit cannot be read: %v", err)
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return ok(name, "no limit")
	}
	if limit.Cur < needed {
		return bad(name, fmt.Sprintf("ulimit -l %d, LimitMEMLOCK= in the systemd unit, or grant CAP_IPC_LOCK", needed>>10),
			"%d KiB allowed, %d KiB needed", limit.Cur>>10, needed>>10).wants(capIPCLock)
	}
	return ok(name, "%d KiB allowed, %d KiB needed", limit.Cur>>10, needed>>10)
}

// firstUserSpace is the inode number of the initial user namespace
// (include/linux/proc_ns.h).
const firstUserSpace = 0xEFFFFFFD

// probeUserSpace checks the user namespace. A capability of a user namespace is valid
// only for objects that this user namespace owns. BPF programs belong to the initial
// one.
func probeUserSpace() Probe {
	const name = "user namespace"
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &own); err != nil {
		return unknown(name, mountProc, "cannot be told: %v", err)
	}
	if own.Ino != firstUserSpace {
		return hint(name, "run in the host's user namespace: outside rootless containers, or with the container's user namespace off",
			"one of its own: its capabilities load no BPF program, and a network that another one owns takes no TCP_REPAIR")
	}
	net, err := os.Open(threadSpace)
	if err != nil {
		return unknown(name, mountProc, "who owns the network namespace cannot be told: %v", err)
	}
	defer net.Close()
	owner, err := unix.IoctlRetInt(int(net.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return unknown(name, "run as root to see it", "the first one; who owns the network namespace cannot be told: %v", err)
	}
	defer unix.Close(owner)
	var of unix.Stat_t
	if err := unix.Fstat(owner, &of); err != nil {
		return unknown(name, "run as root to see it", "the first one; who owns the network namespace cannot be told: %v", err)
	}
	if of.Ino != own.Ino {
		return ok(name, "the first one; another, which is below it, owns the network namespace")
	}
	return ok(name, "the first one, which owns the network namespace")
}

// probeUnprivileged reports a setting that may explain a refusal. The setting is no
// requirement: XDP programs need CAP_BPF in any case.
func probeUnprivileged() Probe {
	const name = "unprivileged BPF"
	value, err := os.ReadFile("/proc/sys/kernel/unprivileged_bpf_disabled")
	if errors.Is(err, os.ErrNotExist) {
		return ok(name, "the kernel has no such setting; stag takes CAP_BPF in any case")
	}
	if err != nil {
		return unknown(name, "run as root to see it", "cannot be told: %v; stag takes CAP_BPF in any case", err)
	}
	if strings.TrimSpace(string(value)) == "0" {
		return ok(name, "permitted for some programs, of which stag's is none: it takes CAP_BPF in any case")
	}
	return ok(name, "not permitted; stag takes CAP_BPF in any case")
}

// probeConfinement checks for restrictions besides capabilities: no_new_privs and
// seccomp.
func probeConfinement() Probe {
	const name = "confinement"
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return unknown(name, mountProc, "cannot be told: %v", err)
	}
	field := func(name string) string {
		for line := range strings.Lines(string(status)) {
			if value, found := strings.CutPrefix(line, name+":"); found {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	filtered := field("Seccomp") == "2"
	switch lack := loader.Lacking(engineCaps...); {
	case field("NoNewPrivs") == "1" && len(lack) > 0:
		return hint(name, "run without no_new_privs (NoNewPrivileges= of systemd, allowPrivilegeEscalation of Kubernetes), or start with the capabilities",
			"no_new_privs is set: capabilities of the stag binary (setcap) have no effect")
	case filtered && len(lack) == 0:
		return ok(name, "a seccomp filter, which must permit bpf, membarrier and AF_XDP sockets: see the kernel's rows")
	case filtered:
		return unknown(name, "run with a seccomp profile that permits bpf, membarrier and AF_XDP sockets", "a seccomp filter, and no capabilities to try it with")
	}
	return ok(name, "no seccomp filter")
}
