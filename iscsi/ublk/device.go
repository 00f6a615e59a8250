package ublk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/block"
)

const (
	depth  = 64
	buffer = 512 << 10 // octets of the data of one request

	// cancelTime is how long Close waits for requests in progress before it cancels them.
	cancelTime = 10 * time.Second
)

// Device is a volume as /dev/ublkbN. When the process dies, the kernel ends the device.
type Device struct {
	id      uint32
	control *control
	queue   *queue
	done    chan struct{} // closed when the device has ended
	closed  sync.Once
	err     error // valid after Close
}

// Attach makes a volume a block device. The caller must close the Device.
func Attach(v block.Volume) (*Device, error) {
	c, err := openControl()
	if err != nil {
		return nil, err
	}
	d := &Device{control: c, done: make(chan struct{})}
	i := info{queues: 1, depth: depth, buffer: buffer, id: anyDevice, flags: featureIoctlEncode}
	i.put(c.mem)
	if err := c.do(ctrlAddDev, anyDevice, infoLen, 0); err != nil {
		c.close()
		return nil, fmt.Errorf("add a ublk device: %w", err)
	}
	d.id = parseInfo(c.mem).id
	if err := d.start(v); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) start(v block.Volume) error {
	s := v.Shape()
	putParams(d.control.mem, &s, buffer)
	if err := d.control.do(ctrlSetParams, d.id, paramsLen, 0); err != nil {
		return fmt.Errorf("set parameters of ublk device %d: %w", d.id, err)
	}
	q, err := newQueue(fmt.Sprintf("/dev/ublkc%d", d.id), v)
	if err != nil {
		return err
	}
	d.queue = q
	started := make(chan error, 1)
	go func() {
		q.run(started)
		close(d.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("ublk device %d: fetch requests: %w", d.id, err)
	}
	if err := d.control.do(ctrlStartDev, d.id, 0, uint64(os.Getpid())); err != nil {
		return fmt.Errorf("start ublk device %d: %w", d.id, err)
	}
	return nil
}

// Path returns the name of the device's file.
func (d *Device) Path() string { return fmt.Sprintf("/dev/ublkb%d", d.id) }

// Done is closed when the device has ended.
func (d *Device) Done() <-chan struct{} { return d.done }

// Close ends the device. Requests in progress that take longer than 10 s fail. Close may be
// called twice.
func (d *Device) Close() error {
	d.closed.Do(func() { d.err = d.end() })
	return d.err
}

func (d *Device) end() error {
	defer d.control.close()
	var errs []error
	if d.queue != nil {
		late := time.AfterFunc(cancelTime, d.queue.q.Cancel)
		// ENODEV: the device has not been started, or has ended.
		if err := d.control.do(ctrlStopDev, d.id, 0, 0); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("stop ublk device %d: %w", d.id, err))
		}
		<-d.done
		late.Stop()
		errs = append(errs, d.queue.err, d.queue.close())
	}
	return errors.Join(append(errs, d.control.remove(d.id))...)
}
