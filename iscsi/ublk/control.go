package ublk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const controlPath = "/dev/ublk-control"

// Errors of Attach.
var (
	ErrNoKernel = errors.New("the kernel has no ublk of Linux 6.5 or later (CONFIG_BLK_DEV_UBLK, module ublk_drv)")
	ErrNoURing  = errors.New("the kernel does not permit io_uring: see sysctl kernel.io_uring_disabled")
)

// control gives commands to the driver. One goroutine at a time uses it.
type control struct {
	f    *os.File
	ring *ring
	mem  []byte // of what a command points to
}

func openControl() (c *control, err error) {
	f, err := os.OpenFile(controlPath, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil, ErrNoKernel
	}
	if err != nil {
		return nil, err
	}
	c = &control{f: f}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	c.ring, err = newRing(4)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("%w: %w", ErrNoURing, err)
	}
	if err != nil {
		return nil, err
	}
	if c.mem, err = anonymous(os.Getpagesize()); err != nil {
		return nil, err
	}
	if err := c.do(ctrlGetFeatures, anyDevice, 8, 0); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKernel, err)
	}
	if features := binary.NativeEndian.Uint64(c.mem); features&featureIoctlEncode == 0 {
		return nil, fmt.Errorf("%w: its features are %#x", ErrNoKernel, features)
	}
	return c, nil
}

// anonymous returns n octets of memory that no garbage collector knows.
func anonymous(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap %d octets: %w", n, err)
	}
	return b, nil
}

func (c *control) close() {
	if c.ring != nil {
		c.ring.close()
	}
	if c.mem != nil {
		unix.Munmap(c.mem) // it cannot fail: the mapping is there
	}
	c.f.Close()
}

// do executes a command on a device, with n octets of mem.
func (c *control) do(op, id uint32, n int, data uint64) error {
	runtime.LockOSThread() // the kernel completes the command on the thread that has submitted it
	defer runtime.UnlockOSThread()
	e := c.ring.entry()
	command(e, int(c.f.Fd()), op, 0)
	b := e[commandAt:]
	binary.NativeEndian.PutUint32(b, id)
	binary.NativeEndian.PutUint16(b[4:], 1<<16-1) // no queue
	binary.NativeEndian.PutUint16(b[6:], uint16(n))
	if n != 0 {
		binary.NativeEndian.PutUint64(b[8:], address(c.mem))
	}
	binary.NativeEndian.PutUint64(b[16:], data)
	res, ended := int32(0), false
	for !ended {
		if err := c.ring.enter(1); err != nil {
			return err
		}
		c.ring.reap(func(_ uint64, r int32) { res, ended = r, true })
	}
	if res < 0 {
		return unix.Errno(-res)
	}
	return nil
}

// commandAt is the place of a command's own structure in its submission queue entry.
const commandAt = 48

// command fills in a submission queue entry that is a command to a driver.
func command(e []byte, fd int, op uint32, data uint64) {
	e[0] = opURingCmd
	binary.NativeEndian.PutUint32(e[4:], uint32(fd))
	binary.NativeEndian.PutUint32(e[8:], op)
	binary.NativeEndian.PutUint64(e[32:], data)
}

// Remove deletes what is left of the device of a process that has died. It does nothing if
// the device is that of another process, or is gone.
func Remove(id, pid int) error {
	c, err := openControl()
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.do(ctrlGetDevInfo, uint32(id), infoLen, 0); errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	} else if err != nil {
		return fmt.Errorf("ublk device %d: %w", id, err)
	}
	if i := parseInfo(c.mem); int(i.pid) != pid || i.state == stateLive {
		return nil
	}
	return c.remove(uint32(id))
}

// remove deletes a device. It does not wait for a mount that still refers to the device,
// unless the kernel is older than Linux 6.9.
func (c *control) remove(id uint32) error {
	err := c.do(ctrlDelDevAsync, id, 0, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
		err = c.do(ctrlDelDev, id, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("delete ublk device %d: %w", id, err)
	}
	return nil
}

// Probe returns nil if this host has what Attach needs.
func Probe() error {
	c, err := openControl()
	if err != nil {
		return err
	}
	c.close()
	return nil
}
