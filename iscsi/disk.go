package iscsi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Disk is a logical unit of a session, or one that several sessions reach (DialMultipath).
// It is safe for concurrent use.
type Disk struct {
	s        *Session   // nil: there are several
	paths    *multipath // nil: there is one session
	lun      uint16
	capacity scsi.Capacity
	limits   scsi.Limits
	most     int // octets of one READ or WRITE
	identity Identity
	names    []scsi.Designator // of the unit, by page 83h
	tpgs     uint8             // TPGS of the standard INQUIRY data
	by       *calls            // nil: those of the session, or of all paths
}

// Identity says which unit a Disk is.
type Identity struct {
	Vendor, Product, Revision string
	Serial                    string // "" if the unit does not tell
}

// largestTransfer limits one READ or WRITE of ReadAt and WriteAt, in octets.
const largestTransfer = 1 << 20

// Session returns the session of the disk. It is nil for a disk of DialMultipath, which has
// a session for each of its Paths.
func (d *Disk) Session() *Session { return d.s }

// LUN returns the logical unit number.
func (d *Disk) LUN() uint16 { return d.lun }

// Size returns the size in octets.
func (d *Disk) Size() int64 { return d.capacity.Size() }

// BlockSize returns the length of a logical block in octets. Offsets and lengths are
// multiples of it.
func (d *Disk) BlockSize() int { return int(d.capacity.BlockSize) }

// Identity returns what the unit says of itself.
func (d *Disk) Identity() Identity { return d.identity }

// Close ends the sessions of the disk.
func (d *Disk) Close() error {
	if d.paths != nil {
		return d.paths.close()
	}
	return d.s.Close()
}

// Err returns why no more commands can be executed, or nil.
func (d *Disk) Err() error {
	select {
	case <-d.Done():
		return d.lost()
	default:
		return nil
	}
}

// Done is closed when no more commands can be executed, and all have completed.
func (d *Disk) Done() <-chan struct{} {
	if d.paths != nil {
		return d.paths.gone
	}
	return d.s.Done()
}

func (d *Disk) lost() error {
	if d.paths != nil {
		return d.paths.lost()
	}
	return d.s.lost()
}

// Do executes any SCSI command for the disk's unit, as Session.Do does.
func (d *Disk) Do(ctx context.Context, c Command) (Result, error) {
	return d.execute(ctx, c.CDB, list(c.In), list(c.Out))
}

func (d *Disk) execute(ctx context.Context, cdb []byte, in, out [][]byte) (Result, error) {
	switch {
	case d.by != nil:
		return d.by.execute(ctx, d.lun, cdb, in, out)
	case d.paths != nil:
		return d.paths.calls.execute(ctx, d.lun, cdb, in, out)
	}
	return d.s.calling().execute(ctx, d.lun, cdb, in, out)
}

// open asks a logical unit what it is.
func (s *Session) open(ctx context.Context, lun uint16) (*Disk, error) {
	d := &Disk{s: s, lun: lun}
	buf := make([]byte, 1024)
	if err := d.inquire(ctx, buf); err != nil {
		return nil, err
	}
	cdb := scsi.TestUnitReady()
	if _, err := d.command(ctx, cdb[:6], nil, nil); err != nil {
		return nil, err
	}
	if err := d.measure(ctx, buf); err != nil {
		return nil, err
	}
	if err := d.inspect(ctx, buf); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.disks = append(s.disks, d)
	s.mu.Unlock()
	return d, nil
}

// inquire reads the standard INQUIRY data.
func (d *Disk) inquire(ctx context.Context, buf []byte) error {
	cdb := scsi.StandardInquiry(255)
	r, err := d.command(ctx, cdb[:6], buf[:255], nil)
	if err != nil {
		return err
	}
	q, err := scsi.ParseInquiry(buf[:r.Length])
	if err != nil {
		return err
	}
	if q.Qualifier != 0 || q.Type != 0 {
		return fmt.Errorf("there is no disk: the unit is a %v: choose another LUN", q.Type)
	}
	d.identity = Identity{Vendor: q.Vendor, Product: q.Product, Revision: q.Revision}
	d.tpgs = q.TPGS
	return nil
}

// measure reads the capacity.
func (d *Disk) measure(ctx context.Context, buf []byte) error {
	cdb := scsi.ReadCapacity16()
	r, err := d.command(ctx, cdb[:16], buf[:scsi.Capacity16Len], nil)
	if err == nil {
		d.capacity, err = scsi.ParseCapacity16(buf[:r.Length])
		return err
	}
	var status *StatusError
	if !errors.As(err, &status) {
		return err
	}
	cdb = scsi.ReadCapacity10() // old units know only this
	if r, err = d.command(ctx, cdb[:10], buf[:8], nil); err != nil {
		return err
	}
	d.capacity, err = scsi.ParseCapacity10(buf[:r.Length])
	return err
}

// inspect reads the vital product data that the unit has.
func (d *Disk) inspect(ctx context.Context, buf []byte) error {
	var err error
	if d.most, err = longest(d.capacity.BlockSize, 0); err != nil {
		return err
	}
	pages, err := d.page(ctx, 0x00, buf)
	if err != nil || pages == nil {
		return err
	}
	supported, err := scsi.ParseSupported(pages)
	if err != nil {
		return err
	}
	for _, p := range supported {
		switch p {
		case 0x80:
			if b, err := d.page(ctx, p, buf); err != nil {
				return err
			} else if b != nil {
				d.identity.Serial, _ = scsi.ParseSerial(b) // a unit without a serial number may have an empty page
			}
		case scsi.PageIdentification:
			if d.names, err = d.readNames(ctx, buf); err != nil {
				return err
			}
		case scsi.PageLimits:
			b, err := d.page(ctx, p, buf)
			if err != nil {
				return err
			}
			if d.limits, err = scsi.ParseLimits(b); err != nil {
				return err
			}
		}
	}
	d.most, err = longest(d.capacity.BlockSize, d.limits.MaxTransfer)
	return err
}

// longest returns how many octets one READ or WRITE has at most, in whole blocks. limit is
// what the unit takes, in blocks; 0: it does not tell.
func longest(block, limit uint32) (int, error) {
	if block > largestTransfer {
		return 0, fmt.Errorf("the unit has blocks of %d octets: blocks of more than %d octets are not supported", block, largestTransfer)
	}
	n := uint64(largestTransfer)
	if limit != 0 {
		n = min(n, uint64(limit)*uint64(block))
	}
	return int(n - n%uint64(block)), nil
}

// page reads a page of vital product data. It returns nil if the unit has no such page.
func (d *Disk) page(ctx context.Context, code uint8, buf []byte) ([]byte, error) {
	cdb := scsi.VPDInquiry(code, uint16(len(buf)))
	r, err := d.command(ctx, cdb[:6], buf, nil)
	var status *StatusError
	if errors.As(err, &status) {
		return nil, nil
	}
	return buf[:r.Length], err
}

// Retries of command.
const (
	mostRetries = 20
	busyTime    = 50 * time.Millisecond // between tries if the unit is busy
)

// command executes a command of the disk's unit. It repeats the command after a unit
// attention, and while the unit is busy.
func (d *Disk) command(ctx context.Context, cdb []byte, in, out []byte) (r Result, err error) {
	for range mostRetries {
		r, err = d.execute(ctx, cdb, list(in), list(out))
		var status *StatusError
		if !errors.As(err, &status) {
			return r, err
		}
		d.report(status)
		again, later := repeats(status)
		if !again {
			return r, err
		}
		if later {
			select {
			case <-time.After(busyTime):
			case <-ctx.Done():
				return r, context.Cause(ctx)
			}
		}
	}
	return r, err
}

// repeats reports whether a command is worth another try, and whether only later.
func repeats(e *StatusError) (again, later bool) {
	switch scsi.Status(e.Status) {
	case scsi.Busy, scsi.TaskSetFull:
		return true, true
	case scsi.CheckCondition:
		sense, err := scsi.ParseSense(e.Sense)
		return err == nil && sense.Key == scsi.UnitAttention, false
	}
	return false, false
}
