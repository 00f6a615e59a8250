package attach

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/iscsi/nbd"
	"github.com/stag-rdma/stag/iscsi/ublk"
)

// Device is a volume as a block device.
type Device interface {
	// Path returns the name of the device's file.
	Path() string
	// Done is closed when the device has ended.
	Done() <-chan struct{}
	// Close ends the device, even if it is in use. Requests in progress may fail. Close may be called
	// twice.
	Close() error
}

// Errors of Probe and Release.
var (
	ErrNoDriver = errors.New("this kernel has no driver for block devices of programs")
	ErrInUse    = errors.New("the device is in use")
)

// Driver is a part of the kernel that makes a block device of a program.
type Driver struct {
	Name   string // "ublk" or "nbd"
	module string
	probe  func() error
	attach func(block.Volume) (Device, error)
}

// Drivers are the drivers, the preferred one first.
var Drivers = []Driver{
	{"ublk", "ublk_drv", ublk.Probe, func(v block.Volume) (Device, error) { return device(ublk.Attach(v)) }},
	{"nbd", "nbd", nbd.Probe, func(v block.Volume) (Device, error) { return device(nbd.Attach(v)) }},
}

// Known reports whether there is a driver of this name, in this kernel or not.
func Known(name string) bool {
	return slices.ContainsFunc(Drivers, func(d Driver) bool { return d.Name == name })
}

// device returns no Device if there is an error.
func device[D Device](d D, err error) (Device, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Probe returns the driver of a name, or for "" the first one that this kernel has. It
// loads the driver's module if there is one. The error is ErrNoDriver if the kernel lacks
// the driver.
func Probe(name string) (Driver, error) {
	var lacks error
	for _, d := range Drivers {
		if name != "" && name != d.Name {
			continue
		}
		err := d.probe()
		if err == nil {
			return d, nil
		}
		load(d.module)
		if err = d.probe(); err == nil {
			return d, nil
		}
		if lacks == nil {
			lacks = err
		} else {
			lacks = fmt.Errorf("%w, and %w", lacks, err)
		}
	}
	if lacks == nil {
		return Driver{}, fmt.Errorf("there is no driver %q: choose ublk or nbd", name)
	}
	return Driver{}, fmt.Errorf("%w: %w", ErrNoDriver, lacks)
}

// load loads a module. If it fails, the probe after it says what is missing.
func load(module string) { _ = exec.Command("modprobe", "-q", module).Run() }

// Attach makes a volume a block device. The caller must close the Device.
func (d Driver) Attach(v block.Volume) (Device, error) { return d.attach(v) }

// Release writes the kernel's cache of a block device to the device. The error is ErrInUse
// if the device is mounted, or another program uses it exclusively.
func Release(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Mend removes what the device of a process that was killed has left in the kernel. For
// /dev/nbdN that is nothing.
func Mend(path string, pid int) error {
	var id int
	if n, _ := fmt.Sscanf(path, "/dev/ublkb%d", &id); n != 1 {
		return nil
	}
	if err := ublk.Remove(id, pid); !errors.Is(err, ublk.ErrNoKernel) {
		return err
	}
	return nil
}
