package storage

import (
	"context"
	"errors"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// attentions is how many unit attentions a unit may report before it answers.
const attentions = 8

// doer executes commands: a session, or a disk.
type doer interface {
	Do(ctx context.Context, c iscsi.Command) (iscsi.Result, error)
}

// ask executes a command whose answer goes into buf, and returns the answer. It repeats the
// command after a unit attention.
func ask(ctx context.Context, s doer, lun uint16, cdb, buf []byte) ([]byte, error) {
	for n := 0; ; n++ {
		r, err := s.Do(ctx, iscsi.Command{LUN: lun, CDB: cdb, In: buf})
		if err == nil {
			return buf[:r.Length], nil
		}
		if n == attentions || !attention(err) {
			return nil, err
		}
	}
}

// attention reports whether a command failed because the unit reports a unit attention.
func attention(err error) bool {
	var status *iscsi.StatusError
	if !errors.As(err, &status) {
		return false
	}
	sense, err := scsi.ParseSense(status.Sense)
	return err == nil && sense.Key == scsi.UnitAttention
}

// refused reports whether the unit has refused a command that it does not know.
func refused(err error) bool {
	var status *iscsi.StatusError
	if !errors.As(err, &status) {
		return false
	}
	sense, err := scsi.ParseSense(status.Sense)
	return err == nil && sense.Key == scsi.IllegalRequest
}

// capacity reads the size of a unit.
func capacity(ctx context.Context, s doer, lun uint16) (scsi.Capacity, error) {
	cdb := scsi.ReadCapacity16()
	b, err := ask(ctx, s, lun, cdb[:16], make([]byte, scsi.Capacity16Len))
	if err == nil {
		return scsi.ParseCapacity16(b)
	}
	if !refused(err) {
		return scsi.Capacity{}, err
	}
	cdb = scsi.ReadCapacity10() // old units know only this
	if b, err = ask(ctx, s, lun, cdb[:10], make([]byte, 8)); err != nil {
		return scsi.Capacity{}, err
	}
	return scsi.ParseCapacity10(b)
}

// standard reads the standard INQUIRY data of a unit.
func standard(ctx context.Context, s doer, lun uint16) (scsi.Inquiry, error) {
	cdb := scsi.StandardInquiry(255)
	b, err := ask(ctx, s, lun, cdb[:6], make([]byte, 255))
	if err != nil {
		return scsi.Inquiry{}, err
	}
	return scsi.ParseInquiry(b)
}

// page reads a page of vital product data.
func page(ctx context.Context, s doer, lun uint16, code uint8) ([]byte, error) {
	buf := make([]byte, 4096)
	cdb := scsi.VPDInquiry(code, uint16(len(buf)))
	return ask(ctx, s, lun, cdb[:6], buf)
}
