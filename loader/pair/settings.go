package pair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// quiet keeps the kernel from sending IPv6 packets of its own accord on the
// link called name, so that a test counts only packets that it caused. Files
// under /proc/sys/net belong to the namespace of the thread that opens them.
func quiet(name string) error {
	for _, setting := range []struct{ file, value string }{
		{"accept_dad", "0"},
		{"dad_transmits", "0"},
		{"router_solicitations", "0"},
		{"accept_ra", "0"},
	} {
		file := filepath.Join("/proc/sys/net/ipv6/conf", name, setting.file)
		err := os.WriteFile(file, []byte(setting.value), 0)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("this kernel has no IPv6: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// threadNAPI moves the packet processing of the link called name to kernel
// threads, which the kernel refuses for a link that has no NAPI. The setting is
// a sysfs file, and a sysfs mount shows the namespace that it was made in, so
// this uses a mount of its own that is attached nowhere.
func threadNAPI(name string) error {
	sysfs, err := mountSysfs()
	if err != nil {
		return fmt.Errorf("mount sysfs for a namespace: %w", err)
	}
	defer sysfs.Close()
	file := filepath.Join("class/net", name, "threaded")
	fd, err := unix.Openat(int(sysfs.Fd()), file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s in sysfs: %w", file, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("1")); err != nil {
		return fmt.Errorf("run NAPI of %s in threads: %w", name, err)
	}
	return nil
}

// mountSysfs is the root directory of a sysfs for the calling thread's network
// namespace. Closing it unmounts it.
func mountSysfs() (*os.File, error) {
	fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(mount), "sysfs"), nil
}
