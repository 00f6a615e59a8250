package run

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	stagd "github.com/stag-rdma/stag/cmd/stag/internal/daemon"
	"github.com/stag-rdma/stag/rdma"
)

// start starts a daemon that ends after this process, which becomes the program. path is the
// socket. With "" it is in a directory that only this user may use.
func start(self, path string, o Options) (string, error) {
	private := ""
	if path == "" {
		dir, err := os.MkdirTemp("", "stag-run-")
		if err != nil {
			return "", err
		}
		private, path = dir, filepath.Join(dir, "stagd.sock")
	}
	err := launch(self, path, private, o)
	if err != nil && private != "" {
		os.RemoveAll(private)
	}
	return path, err
}

// launch starts the daemon and waits until it serves. The process that launch starts starts
// the daemon and ends, so that the daemon is no child of the program.
func launch(self, path, private string, o Options) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	defer write.Close()
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	process := os.NewFile(uintptr(pidfd), "process")
	defer process.Close()
	cmd := exec.Command(self, arguments(path, o)...)
	cmd.Env = append(os.Environ(), stagd.AttendantVariable+"="+private)
	cmd.Dir = "/" // the daemon keeps no directory of the user busy
	cmd.ExtraFiles = []*os.File{process, write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.Verbosity > 0 {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start a daemon: %w", err)
	}
	write.Close()
	said, err := io.ReadAll(read)
	switch text := strings.TrimSpace(string(said)); {
	case err != nil:
		return err
	case text == stagd.Ready:
		return nil
	case text == "":
		return errNoDaemon
	default:
		return fmt.Errorf("daemon: %s", text)
	}
}

// arguments are those of the daemon.
func arguments(path string, o Options) []string {
	args := []string{"daemon", "--socket", path}
	if o.KernelPort {
		args = append(args, "--kernel-port")
	} else {
		args = append(args, "-i", strings.Join(o.Interfaces, ","))
	}
	if o.Carrier != rdma.CarrierAsNamed {
		args = append(args, "--carrier", o.Carrier.String())
	}
	if o.For != rdma.ForAnything {
		args = append(args, "--for", o.For.String())
	}
	if o.Generic {
		args = append(args, "--generic")
	}
	for range o.Verbosity {
		args = append(args, "-v")
	}
	return args
}
