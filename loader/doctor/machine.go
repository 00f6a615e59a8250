package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// regionHeap is the default size of an adapter's region heap, in octets.
const regionHeap = 256 << 20

// probeMemory compares the free memory with the memory that the queues need.
func probeMemory(frames uint64) Probe {
	const name = "memory"
	free, err := availableMemory()
	if err != nil {
		return unknown(name, mountProc, "cannot be told: %v", err)
	}
	where := "free"
	if room, limited := cgroupRoom(); limited && room < free {
		free, where = room, "left of the control group's limit"
	}
	switch {
	case free < frames:
		return bad(name, "end other processes, or raise the limit: MemoryMax=, or memory.max of the control group",
			"%d MiB %s, and the frames take %d MiB", free>>20, where, frames>>20)
	case free < frames+regionHeap:
		return hint(name, "give Open a smaller RegionHeap, or raise the limit",
			"%d MiB %s: room for the frames (%d MiB), and not for the usual region heap (%d MiB)", free>>20, where, frames>>20, regionHeap>>20)
	}
	return ok(name, "%d MiB %s; frames take %d MiB, the usual region heap %d MiB", free>>20, where, frames>>20, regionHeap>>20)
}

// availableMemory returns how much memory the kernel can allocate without swapping, in
// octets.
func availableMemory() (uint64, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(info)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo says nothing of MemAvailable")
}

// cgroupRoom returns the octets that remain below the memory limit of the process's
// control group. Inactive pages of files count as free.
func cgroupRoom() (room uint64, limited bool) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(groups)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		switch {
		case part[0] == "0":
			room, limited = groupRoom(filepath.Join("/sys/fs/cgroup", part[2]), "memory.max", "memory.current", "inactive_file")
		case part[1] == "memory":
			room, limited = groupRoom(filepath.Join("/sys/fs/cgroup/memory", part[2]), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
		}
		if limited {
			return room, true
		}
	}
	return 0, false
}

func groupRoom(dir, limit, usage, cache string) (room uint64, limited bool) {
	most, err := readNumber(filepath.Join(dir, limit))
	if err != nil {
		return 0, false // "max", or the control group does not exist
	}
	used, err := readNumber(filepath.Join(dir, usage))
	if err != nil {
		return 0, false
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	for line := range strings.Lines(string(stat)) {
		var idle uint64
		if n, _ := fmt.Sscanf(line, cache+" %d", &idle); n == 1 {
			used -= min(idle, used)
		}
	}
	return most - min(used, most), true
}

func readNumber(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// fewFiles is the limit on descriptors below which probeFiles reports a hint.
const fewFiles = 1024

// probeFiles checks the limit on descriptors. A connection keeps its descriptor after
// the take-over.
func probeFiles() Probe {
	const name = "open files"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unknown(name, "ulimit -n", "the limit cannot be read: %v", err)
	}
	if limit.Cur < fewFiles {
		return hint(name, "ulimit -n 65536, or LimitNOFILE= in the systemd unit", "%d, and each connection keeps one", limit.Cur)
	}
	return ok(name, "%d; each connection keeps one", limit.Cur)
}

// enterWithPins is the way into a network namespace that keeps /sys/fs/bpf visible.
const enterWithPins = "enter the network namespace by nsenter --net=FILE instead of ip netns exec, which mounts a /sys of its own"

// bpffsRoot is the usual mount point of the BPF file system.
const bpffsRoot = "/sys/fs/bpf"

func probeBPFFS() Probe {
	const name = "BPF file system"
	err := loader.CheckBPFFS(bpffsRoot)
	switch {
	case err == nil:
		return ok(name, "mounted at %s", bpffsRoot)
	case !errors.Is(err, loader.ErrNoBPFFS):
		return untried(name, []string{capSysAdmin}, err)
	case mountedOutside(bpffsRoot):
		return hint(name, enterWithPins,
			"hidden: the machine has one at %s, and this mount namespace has not", bpffsRoot)
	}
	return hint(name, "mount -t bpf bpf "+bpffsRoot, "none at %s, which matters only for programs that stay when their process ends", bpffsRoot)
}

// mountedOutside reports whether process 1 has a BPF file system mounted at that path.
func mountedOutside(at string) bool {
	mounts, err := os.ReadFile("/proc/1/mountinfo")
	if err != nil {
		return false // this process may not read it
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == at && strings.Contains(line, " - bpf ") {
			return true
		}
	}
	return false
}

func probeRuntimeDir() Probe {
	const name = "runtime directory"
	err := os.MkdirAll(loader.RuntimeDir, 0o755)
	if err == nil {
		err = unix.Access(loader.RuntimeDir, unix.W_OK)
	}
	if err != nil {
		return bad(name, fmt.Sprintf("install -d -o %d %s as root", os.Getuid(), loader.RuntimeDir), "%s cannot be written to: %v", loader.RuntimeDir, err)
	}
	return ok(name, "%s", loader.RuntimeDir)
}

// probeClaims lists the claim files of processes that were killed. Such a file blocks
// no other process, because the kernel released the lock with the process.
func probeClaims() Probe {
	const name = "claims"
	held, stale, err := loader.Claims()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok(name, "none: there is no %s", loader.RuntimeDir)
	case err != nil:
		return unknown(name, "run as root to see them", "cannot be listed: %v", err)
	}
	if len(stale) > 0 {
		fix := "rm " + strings.Join(stale[:min(3, len(stale))], " ")
		if n := len(stale) - 3; n > 0 {
			fix += fmt.Sprintf(" and %d more that no process has open", n)
		}
		return hint(name, fix, "%d held, %d left by processes that are gone; they disturb no process", held, len(stale))
	}
	return ok(name, "%d held, none left over", held)
}

// probePins looks for pinned programs that are stale or cannot be read.
func probePins() Probe {
	const name = "pins"
	all, err := loader.Instances()
	switch {
	case errors.Is(err, loader.ErrNoBPFFS) && mountedOutside(bpffsRoot):
		return unknown(name, enterWithPins, "cannot be listed: the BPF file system of the machine is hidden")
	case errors.Is(err, loader.ErrNoBPFFS):
		return ok(name, "none: there is no BPF file system")
	case err != nil:
		return untried(name, []string{capSysAdmin}, err)
	}
	var good int
	var stale []string
	var fix string
	for _, i := range all {
		if i.Err != nil {
			stale = append(stale, fmt.Sprintf("%s (%v)", i.Name, i.Err))
			fix = "stag unload --instance " + i.Name
		}
		for _, p := range i.Ports {
			if p.Stale == "" {
				good++
				continue
			}
			stale = append(stale, fmt.Sprintf("%s (%s)", i.Name, p.Stale))
			fix = "stag unload --instance " + i.Name
		}
	}
	if len(stale) > 0 {
		return hint(name, fix, "%d of use; stale: %s", good, strings.ReplaceAll(strings.Join(stale, ", "), "\n", "; "))
	}
	return ok(name, "interfaces with a program that stays: %d", good)
}
