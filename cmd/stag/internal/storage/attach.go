package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/attach"
	"github.com/stag-rdma/stag/rdma"
)

// AttachOptions describe a disk as a block device of this host.
type AttachOptions struct {
	LocalOptions
	Driver string          // "ublk", "nbd", or "" for what the kernel has
	Force  <-chan struct{} // closed when the device must end though it is in use
}

// Attached says where a disk is.
type Attached struct {
	Device string `json:"device"`
	Driver string `json:"driver"`
	URL    string `json:"url"`
	Path   string `json:"path"`
	carrier.Fields
	Octets    int64 `json:"octets"`
	BlockSize int   `json:"block_size"`
	ReadOnly  bool  `json:"read_only"`
}

// Print prints where a disk is.
func (a Attached) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s is %s over %s until Ctrl-C.\n%s", a.Device, a.URL, a.Path, shapeLine(a.Octets, a.BlockSize, a.ReadOnly))
	return err
}

const attachDepth = 128

// Attach makes a disk a block device until ctx ends and nobody uses it. It calls ready when
// the device is there.
func Attach(ctx context.Context, o AttachOptions, ready func(Attached) error) error {
	driver, err := attach.Probe(o.Driver)
	if err != nil {
		return err
	}
	if err := mendRecords(); err != nil {
		return err
	}
	return o.use(ctx, attachDepth, func(d *iscsi.Disk, a *rdma.Adapter, v *attach.Volume) error {
		return o.attach(ctx, driver, d, a, v, ready)
	})
}

func (o *AttachOptions) attach(ctx context.Context, driver attach.Driver, d *iscsi.Disk, a *rdma.Adapter, v *attach.Volume, ready func(Attached) error) (err error) {
	r, err := newRecord(public(o.URL))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	device, err := driver.Attach(v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if err := r.name(device.Path()); err != nil {
		return err
	}
	shape := v.Shape()
	err = ready(Attached{
		Device: device.Path(), Driver: driver.Name, URL: public(o.URL), Path: o.Path(), Fields: o.carried, Octets: shape.Size, BlockSize: shape.Block, ReadOnly: shape.ReadOnly,
	})
	if err != nil {
		return err
	}
	if err := lastsWith(ctx, a, d, device.Done()); err != nil {
		return fmt.Errorf("%s ends: %w", device.Path(), err)
	}
	if ctx.Err() == nil {
		return fmt.Errorf("%s has ended: another program has disconnected it", device.Path())
	}
	return o.release(d, a, device)
}

// busyPause is the time between two looks whether a device is in use.
const busyPause = 100 * time.Millisecond

// release waits until nobody uses the device, and writes what the kernel has cached.
func (o *AttachOptions) release(d *iscsi.Disk, a *rdma.Adapter, device attach.Device) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lost := make(chan error, 1)
	go func() { lost <- lastsWith(ctx, a, d, device.Done()) }()
	for told := false; ; told = true {
		err := attach.Release(device.Path())
		if !errors.Is(err, attach.ErrInUse) {
			return err
		}
		if !told {
			o.Notice(device.Path() + " is in use, and ends when it is free: unmount it, or press Ctrl-C again to end it at once")
		}
		select {
		case <-o.Force:
			return fmt.Errorf("%s has ended while it was in use: what was not written is lost", device.Path())
		case err := <-lost:
			return err
		case <-time.After(busyPause):
		}
	}
}

// Detached says which devices have ended.
type Detached struct {
	Devices []string `json:"devices"`
}

// Print prints which devices have ended.
func (d Detached) Print(w io.Writer) error {
	for _, name := range d.Devices {
		if _, err := fmt.Fprintf(w, "%s is detached.\n", name); err != nil {
			return err
		}
	}
	return nil
}

// Detach ends the device of a name or URL, or all devices if what is "". A device in use
// ends only with force. It returns the devices that have ended, also beside an error.
func Detach(ctx context.Context, what string, force bool) (Detached, error) {
	done := Detached{Devices: []string{}}
	if err := mendRecords(); err != nil {
		return done, err
	}
	list, err := records()
	if err != nil {
		return done, err
	}
	name := what
	if IsURL(what) {
		name = public(what)
	}
	found := false
	var errs []error
	for _, r := range list {
		if what != "" && name != r.Device && name != r.URL {
			continue
		}
		found = true
		if err := r.detach(ctx, force); err != nil {
			errs = append(errs, err)
			continue
		}
		done.Devices = append(done.Devices, r.Device)
	}
	if !found && what != "" {
		return done, fmt.Errorf("%s is not attached", name)
	}
	return done, errors.Join(errs...)
}

// detach ends the device of a record.
func (r *record) detach(ctx context.Context, force bool) error {
	if !force {
		if err := attach.Release(r.Device); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for {
		if err := r.signal(); err != nil {
			return err
		}
		for end := time.Now().Add(forceTime); ; {
			if over, err := r.over(); over || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ErrInterrupted
			case <-time.After(busyPause):
			}
			if force && time.Now().After(end) {
				break // the second signal ends a device in use
			}
		}
	}
}

// forceTime is how long a device has to end by itself before it is forced.
const forceTime = time.Second
