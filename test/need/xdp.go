package need

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// xdp opens an AF_XDP socket, loads a program that passes all packets, and closes both.
var xdp = sync.OnceValue(func() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("AF_XDP socket: %w", err)
	}
	defer unix.Close(fd)
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit on locked memory: %w", err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "need_xdp",
		Type:         ebpf.XDP,
		Instructions: asm.Instructions{asm.LoadImm(asm.R0, 2, asm.DWord), asm.Return()}, // XDP_PASS
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		return fmt.Errorf("load an XDP program: %w", err)
	}
	return prog.Close()
})
