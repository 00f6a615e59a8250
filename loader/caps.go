package loader

import (
	"slices"

	"golang.org/x/sys/unix"
)

// capability is a Linux capability that stag uses.
type capability struct {
	name string
	bit  int
}

// The comment of each capability says what the capability permits. An engine needs the
// first three.
var (
	capNetAdmin = capability{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN} // permits attaching programs, TCP_REPAIR and changes of neighbours
	capNetRaw   = capability{"CAP_NET_RAW", unix.CAP_NET_RAW}     // permits AF_XDP sockets
	capBPF      = capability{"CAP_BPF", unix.CAP_BPF}             // permits programs and maps
	capIPCLock  = capability{"CAP_IPC_LOCK", unix.CAP_IPC_LOCK}   // permits frames beyond the memlock limit
	capSysAdmin = capability{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN} // permits entering and making namespaces, and reading programs of other processes
)

var allCaps = []capability{capNetAdmin, capNetRaw, capBPF, capIPCLock, capSysAdmin}

// loadCaps are the capabilities that loading the program needs.
var loadCaps = []capability{capBPF, capNetAdmin}

// usualFrames is the size of the frame memory of one queue with the default settings,
// in octets.
const usualFrames = 32 << 20

// adapterCaps returns the capabilities that an engine needs. If the limit on locked
// memory is too low for the engine's frames, the list includes CAP_IPC_LOCK, which
// lifts the limit.
func adapterCaps() []capability {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur >= usualFrames {
		return allCaps[:3]
	}
	return allCaps[:4]
}

// AdapterCaps returns the names of the capabilities that opening an adapter on an
// interface needs under the present limit on locked memory.
func AdapterCaps() (names []string) {
	for _, c := range adapterCaps() {
		names = append(names, c.name)
	}
	return names
}

// Lacking returns those of the named capabilities that the calling thread does not
// have. The result always includes a name that stag does not use.
func Lacking(names ...string) (lack []string) {
	for _, name := range names {
		i := slices.IndexFunc(allCaps, func(c capability) bool { return c.name == name })
		if i < 0 || len(lacking(allCaps[i:i+1])) > 0 {
			lack = append(lack, name)
		}
	}
	return lack
}

// lacking returns the names of those capabilities that the calling thread does not
// have. CAP_SYS_ADMIN includes CAP_BPF, as in the kernel.
func lacking(need []capability) (names []string) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil
	}
	has := func(bit int) bool { return data[bit/32].Effective&(1<<(bit%32)) != 0 }
	for _, c := range need {
		if !has(c.bit) && !(c == capBPF && has(unix.CAP_SYS_ADMIN)) {
			names = append(names, c.name)
		}
	}
	return names
}
