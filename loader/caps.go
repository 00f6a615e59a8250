package loader

import (
	"golang.org/x/sys/unix"
)

// capability is one that stag uses.
type capability struct {
	name string
	bit  int
}

// Capabilities, and what each is for.
var (
	capNetAdmin = capability{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN} // attach programs; TCP_REPAIR; neighbours
	capNetRaw   = capability{"CAP_NET_RAW", unix.CAP_NET_RAW}     // AF_XDP sockets
	capBPF      = capability{"CAP_BPF", unix.CAP_BPF}             // programs and maps
	capIPCLock  = capability{"CAP_IPC_LOCK", unix.CAP_IPC_LOCK}   // frames beyond the memlock limit
)

// loadCaps is what it takes to load the program.
var loadCaps = []capability{capBPF, capNetAdmin}

// lacking is the names of those capabilities that the calling thread does not
// have. CAP_SYS_ADMIN stands for CAP_BPF, as in the kernel.
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
