package nbd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/block"
)

// The ioctls of /dev/nbdN (linux/nbd.h).
const (
	setSock       = 0xab00
	setBlockSize  = 0xab01
	doIt          = 0xab03
	clearSock     = 0xab04
	setSizeBlocks = 0xab07
	disconnect    = 0xab08
	setTimeout    = 0xab09
	setFlags      = 0xab0a
)

// Errors of Attach.
var (
	ErrNoKernel = errors.New("the kernel has no NBD client (CONFIG_BLK_DEV_NBD, module nbd)")
	ErrNoFree   = errors.New("every /dev/nbdN is in use: detach one, or load the module with a greater nbds_max")
)

// Device is a volume as /dev/nbdN. The kernel is the client of this process, over a pair of
// sockets. When the process dies, the kernel ends the device.
type Device struct {
	path   string
	file   *os.File
	peer   *os.File // the kernel's socket
	conn   net.Conn // ours
	cancel context.CancelFunc

	done   chan struct{} // closed when the device has ended
	err    error         // valid after done
	closed sync.Once
}

const kernelDepth = 128

// sendBuffer is the length in octets of the kernel's send buffer: the greatest that there is.
// It has room for all requests in flight, 160 MiB with the kernel's usual lengths, so that the
// kernel never waits for this process while it sends. If this process is killed during such a
// wait, the thread of run waits for the sender, the sender for the end of this process, and
// the end for the thread of run. The device then hangs until the next boot.
const sendBuffer = 1<<30 - 1

// Attach makes a volume a block device. The caller must close the Device.
func Attach(v block.Volume) (*Device, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	d := &Device{conn: ours, peer: theirs, done: make(chan struct{})}
	s := v.Shape()
	if err := d.take(&s); err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	var running sync.WaitGroup
	var served, ran error
	running.Go(func() {
		served = transmit(ctx, ours, v, &s, kernelDepth, defaultMemory)
		ours.Close() // ends ran
	})
	started := make(chan error, 1)
	running.Go(func() {
		ran = d.run()
		started <- ran
		ours.Close() // ends served
	})
	go func() {
		running.Wait()
		d.err = errors.Join(served, ran)
		close(d.done)
	}()
	if err := d.ready(started); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// socketPair returns two connected sockets.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "nbd")
	f := os.NewFile(uintptr(fds[0]), "nbd")
	defer f.Close()
	if err = unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer); err != nil {
		err = fmt.Errorf("SO_SNDBUFFORCE: %w", err)
	} else {
		ours, err = net.FileConn(f)
	}
	if err != nil {
		theirs.Close()
	}
	return ours, theirs, err
}

// take finds a device that nobody uses, and configures it.
func (d *Device) take(s *block.Shape) error {
	for n := 0; ; n++ {
		dir := fmt.Sprintf("/sys/block/nbd%d", n)
		if _, err := os.Stat(dir); err != nil {
			if n == 0 {
				return ErrNoKernel
			}
			return ErrNoFree
		}
		if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
			continue
		}
		err := d.configure(fmt.Sprintf("/dev/nbd%d", n), s)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
}

// configure opens a device and configures it. The error is EBUSY if it is in use.
func (d *Device) configure(path string, s *block.Shape) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: /sys/block has the device: is /dev a devtmpfs?", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	flags := transmissionFlags(s) &^ CanMultiConn
	for _, c := range []struct {
		name  string
		req   uint
		value int
	}{
		{"NBD_SET_SOCK", setSock, int(d.peer.Fd())}, {"NBD_SET_BLKSIZE", setBlockSize, s.Block}, {"NBD_SET_SIZE_BLOCKS", setSizeBlocks, int(s.Size / int64(s.Block))},
		{"NBD_SET_TIMEOUT", setTimeout, 0}, {"NBD_SET_FLAGS", setFlags, int(flags)},
	} {
		if err := unix.IoctlSetInt(int(f.Fd()), c.req, c.value); err != nil {
			if c.req != setSock {
				unix.IoctlSetInt(int(f.Fd()), clearSock, 0) // the error before is the one to tell
			}
			return fmt.Errorf("%s: %s: %w", path, c.name, err)
		}
	}
	d.path, d.file = path, f
	return nil
}

// run is in the kernel until the device ends. A signal would end the device, so the thread
// blocks all signals, and is not used any more.
func (d *Device) run() error {
	runtime.LockOSThread()
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i]-- // every bit
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	if err := unix.IoctlSetInt(int(d.file.Fd()), doIt, 0); err != nil {
		return fmt.Errorf("%s: NBD_DO_IT: %w", d.path, err)
	}
	return nil
}

// readyTime is far longer than the kernel needs.
const readyTime = 30 * time.Second

// ready waits until the device works.
func (d *Device) ready(started <-chan error) error {
	pid := filepath.Join("/sys/block", filepath.Base(d.path), "pid")
	for end := time.Now().Add(readyTime); ; {
		if _, err := os.Stat(pid); err == nil {
			// The kernel reads the partition table at the next open.
			f, err := os.Open(d.path)
			if err != nil {
				return err
			}
			return f.Close()
		}
		select {
		case err := <-started:
			if err == nil {
				err = fmt.Errorf("%s: the kernel has ended the device", d.path)
			}
			return err
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: the device has not begun after %v", d.path, readyTime)
		}
	}
}

// Path returns the name of the device's file.
func (d *Device) Path() string { return d.path }

// Done is closed when the device has ended.
func (d *Device) Done() <-chan struct{} { return d.done }

// Close ends the device, and returns the error with which it has ended. Requests in
// progress fail. Close may be called twice.
func (d *Device) Close() error {
	d.closed.Do(func() {
		// It fails if the device has ended by itself.
		unix.IoctlSetInt(int(d.file.Fd()), disconnect, 0)
		d.cancel()
		<-d.done
		unix.IoctlSetInt(int(d.file.Fd()), clearSock, 0)
		d.file.Close()
		d.peer.Close()
	})
	return d.err
}

// Probe returns nil if this host has what Attach needs.
func Probe() error {
	if _, err := os.Stat("/sys/block/nbd0"); err != nil {
		return ErrNoKernel
	}
	return nil
}
