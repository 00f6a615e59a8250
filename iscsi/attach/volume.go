package attach

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Volume is a disk as a block.Volume.
type Volume struct {
	disk   *iscsi.Disk
	traits iscsi.Traits
	shape  block.Shape
}

// NewVolume asks a disk for its traits. The caller closes the disk after the last queue.
func NewVolume(ctx context.Context, d *iscsi.Disk, readOnly bool) (*Volume, error) {
	t, err := d.Traits(ctx)
	if err != nil {
		return nil, err
	}
	size := d.BlockSize()
	if size < 512 || size > 4096 || size&(size-1) != 0 {
		return nil, fmt.Errorf("blocks of %d octets: a block device has 512, 1024, 2048 or 4096", size)
	}
	return &Volume{disk: d, traits: t, shape: block.Shape{
		Size: d.Size(), Block: size, Physical: t.PhysicalBlock, Optimal: t.Optimal, ReadOnly: t.ReadOnly || readOnly, WriteCache: t.WriteCache,
		Rotational: t.Rotational, Discard: t.Discard, DiscardUnit: t.DiscardUnit, WriteZeroes: t.WriteZeroes,
	}}, nil
}

// Shape implements block.Volume.
func (v *Volume) Shape() block.Shape { return v.shape }

// verdict says what follows from the result of a part.
type verdict uint8

const (
	done verdict = iota
	again
	later
	failed
)

// judge returns what follows from an error of the target, and the error of the request.
func (v *Volume) judge(op block.Op, err error) (verdict, error) {
	if err == nil {
		return done, nil
	}
	var status *iscsi.StatusError
	if !errors.As(err, &status) {
		return failed, err
	}
	switch scsi.Status(status.Status) {
	case scsi.Busy, scsi.TaskSetFull:
		return later, err
	case scsi.ReservationConflict:
		return failed, &block.Error{Errno: syscall.EPERM, Err: err}
	}
	sense, wrong := scsi.ParseSense(status.Sense)
	switch {
	case wrong != nil:
	case sense.Key == scsi.UnitAttention:
		return again, err
	case sense.Key == scsi.IllegalRequest && op == block.Flush && !v.shape.WriteCache:
		return done, nil // a unit without a cache may lack SYNCHRONIZE CACHE
	case sense.Key == scsi.DataProtect:
		if sense.Code == scsi.SpaceAllocationFailed {
			return failed, &block.Error{Errno: syscall.ENOSPC, Err: err}
		}
		return failed, &block.Error{Errno: syscall.EPERM, Err: err}
	}
	return failed, err
}
