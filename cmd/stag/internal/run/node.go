package run

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/daemon"
)

// nodes is the directory in which UCX looks for the devices of InfiniBand.
const nodes = "/dev/infiniband"

// hideNodes gives this thread mounts of its own, in which a character device has the name of
// our device: UCX uses no device without one. Nobody opens it. It is /dev/null. The program
// must be executed by this thread.
func hideNodes() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount --make-rslave /", err)
	}
	if err := os.MkdirAll(nodes, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("stag", nodes, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return os.NewSyscallError("mount "+nodes, err)
	}
	node := filepath.Join(nodes, daemon.DeviceName)
	if err := os.WriteFile(node, nil, 0o666); err != nil {
		return err
	}
	return os.NewSyscallError("mount "+node, unix.Mount("/dev/null", node, "", unix.MS_BIND, ""))
}
