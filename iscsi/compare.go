package iscsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// MiscompareError is the error of a CompareAndWrite that has found other octets, and has written
// nothing.
type MiscompareError struct {
	At int64 // distance of the first octet that differs from the first one; -1: the unit does not tell
}

func (e *MiscompareError) Error() string {
	if e.At < 0 {
		return "iscsi: COMPARE AND WRITE: the disk has other octets"
	}
	return fmt.Sprintf("iscsi: COMPARE AND WRITE: the disk has another octet at distance %d", e.At)
}

// CompareAndWrite writes p at off if the disk has the octets of old there (COMPARE AND WRITE,
// SBC-3 §5.2). No other command of any initiator changes them in between. old and p must have
// the same length, a multiple of the block size; the unit takes few blocks at a time, often
// one. Errors also: a *MiscompareError; ErrUncertain, because the command is not repeated if
// its connection is lost.
func (d *Disk) CompareAndWrite(old, p []byte, off int64) error {
	if err := d.check("compare and write", int64(len(p)), off); err != nil {
		return err
	}
	size := int64(d.BlockSize())
	blocks := int64(len(p)) / size
	switch most := d.limits.MaxCompareAndWrite; {
	case len(old) != len(p):
		return fmt.Errorf("iscsi: compare %d octets and write %d: give two slices of one length", len(old), len(p))
	case blocks == 0:
		return nil
	case most == 0:
		return errors.New("iscsi: compare and write: the unit has no COMPARE AND WRITE")
	case blocks > int64(most):
		return fmt.Errorf("iscsi: compare and write %d blocks: the unit takes at most %d", blocks, most)
	}
	cdb := scsi.CompareAndWrite(uint64(off/size), uint8(blocks), 0)
	_, err := d.command(context.Background(), length(&cdb), nil, bytes.Join([][]byte{old, p}, nil))
	return miscompared(err)
}

// miscompared returns a *MiscompareError in place of the status that says so.
func miscompared(err error) error {
	var status *StatusError
	if !errors.As(err, &status) {
		return err
	}
	sense, bad := scsi.ParseSense(status.Sense)
	switch {
	case bad != nil || sense.Key != scsi.Miscompare:
		return err
	case sense.HasInfo:
		return &MiscompareError{At: int64(sense.Info)}
	}
	return &MiscompareError{At: -1}
}
