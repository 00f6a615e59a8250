package loader

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// knob is a setting of an interface that can be changed while the link is up. Its
// functions work in the network namespace of the calling OS thread.
type knob struct {
	get func(e ethtool, link string) (string, error)
	set func(e ethtool, link, value string) error
}

// knobs is indexed by the name of a setting, as `ethtool -K` or sysfs calls it. The
// values are those of `ethtool -K` and of the file in sysfs.
var knobs = map[string]knob{
	"gro":    switchKnob(unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO),
	"gso":    switchKnob(unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO),
	"tso":    switchKnob(unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO),
	"tx":     switchKnob(ethtoolGTxCsum, unix.ETHTOOL_STXCSUM),
	"lro":    flagKnob(ethFlagLRO),
	"rxvlan": flagKnob(ethFlagRxVLAN),
	"threaded": {
		func(_ ethtool, link string) (string, error) { return readThreaded(link) },
		func(_ ethtool, link, value string) error { return writeThreaded(link, value) },
	},
}

// These are the values of an on-off setting.
const (
	on  = "on"
	off = "off"
)

// switchKnob returns the knob of a setting that has a command to read it and a command
// to write it.
func switchKnob(get, set uint32) knob {
	return knob{
		func(e ethtool, link string) (string, error) {
			v, err := e.value(link, get, 0)
			return position(v != 0), err
		},
		func(e ethtool, link, value string) error {
			var v uint32
			if value == on {
				v = 1
			}
			_, err := e.value(link, set, v)
			return err
		},
	}
}

// flagKnob returns the knob of a setting that is one bit of the ethtool flags word.
func flagKnob(flag uint32) knob {
	return knob{
		func(e ethtool, link string) (string, error) {
			v, err := e.value(link, unix.ETHTOOL_GFLAGS, 0)
			return position(v&flag != 0), err
		},
		func(e ethtool, link, value string) error {
			v, err := e.value(link, unix.ETHTOOL_GFLAGS, 0)
			if err != nil {
				return err
			}
			v &^= flag
			if value == on {
				v |= flag
			}
			_, err = e.value(link, unix.ETHTOOL_SFLAGS, v)
			return err
		},
	}
}

func position(set bool) string {
	if set {
		return on
	}
	return off
}

// turn changes a setting and reads it back, because a driver may keep the old value
// without an error.
func (k knob) turn(e ethtool, link, value string) error {
	if err := k.set(e, link, value); err != nil {
		return err
	}
	switch now, err := k.get(e, link); {
	case err != nil:
		return err
	case now != value:
		return fmt.Errorf("the driver keeps it at %s", now)
	}
	return nil
}

// SetThreadedNAPI moves the packet processing of the interface called name to kernel
// threads, or back to softirq. It does what writing 1 or 0 to
// /sys/class/net/NAME/threaded does. SetThreadedNAPI looks the interface up in the
// network namespace of the calling OS thread. It needs CAP_SYS_ADMIN. The kernel
// refuses a link that has no NAPI.
func SetThreadedNAPI(name string, threaded bool) error {
	value := "0"
	if threaded {
		value = "1"
	}
	if err := writeThreaded(name, value); err != nil {
		return fmt.Errorf("run NAPI of %s in threads: %w", name, err)
	}
	return nil
}

func readThreaded(link string) (string, error) {
	f, err := openThreaded(link, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	return strings.TrimSpace(string(text)), err
}

func writeThreaded(link, value string) error {
	f, err := openThreaded(link, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	err = errors.Join(err, f.Close())
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errors.New("the interface has no NAPI")
	}
	return err
}

// openThreaded opens the sysfs file of the setting. A sysfs mount shows the network
// namespace in which the mount was made. openThreaded therefore uses its own sysfs
// mount, which is attached nowhere.
func openThreaded(link string, flags int) (*os.File, error) {
	sysfs, err := Sysfs()
	if errors.Is(err, unix.EPERM) {
		return nil, errors.New("only CAP_SYS_ADMIN gets at it in every network namespace")
	}
	if err != nil {
		return nil, fmt.Errorf("mount sysfs for a network namespace: %w", err)
	}
	defer sysfs.Close()
	path := filepath.Join("class/net", link, "threaded")
	fd, err := unix.Openat(int(sysfs.Fd()), path, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errors.New("the kernel has no such setting (Linux 5.12)")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s in sysfs: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Sysfs mounts a sysfs for the calling thread's network namespace and returns its
// root directory. The mount is attached nowhere: closing the directory unmounts it.
// Sysfs needs CAP_SYS_ADMIN.
func Sysfs() (*os.File, error) {
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
