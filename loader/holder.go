package loader

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// holder returns the pid of another process that has the map of sockets open for
// writing, or 0. holder finds an engine in a container. Such an engine keeps its claims
// in a runtime directory of its own, and the pid in its flow entries means another
// process here. holder looks at every process, so it is slow.
func (p *PinnedPort) holder() int {
	path := filepath.Join(p.Dir, bpf.MapSocks)
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return 0
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0
	}
	id, _ := info.ID()
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if pid := pidIn(process); pid != os.Getpid() && writesTo(process, id) {
			return pid
		}
	}
	return 0
}

// writesTo reports whether the process has the map open for writing.
func writesTo(process string, id ebpf.MapID) bool {
	files, _ := os.ReadDir(filepath.Join(process, "fd"))
	for _, file := range files {
		target, err := os.Readlink(filepath.Join(process, "fd", file.Name()))
		if err != nil || target != "anon_inode:bpf-map" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(process, "fdinfo", file.Name()))
		if err != nil {
			continue
		}
		var flags, number uint64
		for line := range bytes.Lines(text) {
			fmt.Sscanf(string(line), "flags: %o", &flags)
			fmt.Sscanf(string(line), "map_id: %d", &number)
		}
		if flags&unix.O_ACCMODE == unix.O_RDWR && ebpf.MapID(number) == id {
			return true
		}
	}
	return false
}
