package iscsi

import (
	"context"
	"errors"
	"math"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Traits is what a program must know of a disk that makes it a block device. Lengths are
// octets.
type Traits struct {
	ReadOnly   bool // the unit refuses writes
	WriteCache bool // the unit has a volatile cache: Sync makes writes stable
	FUA        bool // the unit has the FUA bit: IO.FUA makes one write stable
	Rotational bool // the medium rotates, as far as the unit tells

	PhysicalBlock int64 // a multiple of the block size
	Transfer      int64 // longest Read or Write
	Optimal       int64 // length of transfers that the unit prefers; 0: it does not tell
	Discard       int64 // longest Discard; 0: the unit has none
	DiscardUnit   int64 // granularity of Discard; at least the block size
	WriteZeroes   int64 // longest WriteZeroes; 0: the unit refuses WRITE SAME
}

// longestExtent limits the length of a Discard or a WriteZeroes in octets, so that one
// command does not take long.
const longestExtent = 1 << 30

// Traits asks the unit for its traits.
func (d *Disk) Traits(ctx context.Context) (t Traits, err error) {
	size := int64(d.BlockSize())
	octets := func(blocks uint64, most int64) int64 { return int64(min(blocks, uint64(most/size))) * size }
	t = Traits{
		PhysicalBlock: size << d.capacity.PhysicalExponent, Transfer: octets(math.MaxUint64, largestTransfer),
		Optimal: octets(uint64(d.limits.OptimalTransfer), math.MaxInt32), DiscardUnit: size * int64(max(1, d.limits.UnmapGranularity)),
	}
	if d.limits.MaxTransfer != 0 {
		t.Transfer = octets(uint64(d.limits.MaxTransfer), t.Transfer)
	}
	if err := d.askMode(ctx, &t); err != nil {
		return t, err
	}
	if err := d.askRotation(ctx, &t); err != nil {
		return t, err
	}
	if t.ReadOnly {
		return t, nil
	}
	if d.capacity.Thin && d.limits.MaxUnmapExtents != 0 {
		t.Discard = octets(uint64(d.limits.MaxUnmap), longestExtent)
	}
	t.WriteZeroes, err = d.askWriteSame(ctx, octets)
	return t, err
}

// askMode reads what MODE SENSE tells. A unit that knows only the form of 6 octets, or no
// caching page, is asked for less.
func (d *Disk) askMode(ctx context.Context, t *Traits) error {
	buf := make([]byte, 255)
	t.WriteCache = true // until the unit denies it
	for _, page := range []uint8{scsi.ModeCaching, scsi.ModeAll} {
		cdb := scsi.ModeSense6(page, 0, uint8(len(buf)))
		r, err := d.command(ctx, cdb[:6], buf, nil)
		var status *StatusError
		if errors.As(err, &status) {
			continue
		}
		if err != nil {
			return err
		}
		m, err := scsi.ParseMode6(buf[:r.Length])
		if err != nil {
			return err
		}
		t.ReadOnly, t.FUA = m.WriteProtected, m.ForceAccess
		if enabled, known := m.WriteCache(); known {
			t.WriteCache = enabled
		}
		return nil
	}
	return nil
}

// askRotation reads page B1h. A unit without this page does not tell.
func (d *Disk) askRotation(ctx context.Context, t *Traits) error {
	b, err := d.page(ctx, scsi.PageCharacteristics, make([]byte, 64))
	if err != nil || b == nil {
		return err
	}
	c, err := scsi.ParseCharacteristics(b)
	t.Rotational = err == nil && c.RotationRate > 1
	return nil
}

// askWriteSame returns the length of the longest WRITE SAME. A unit that does not know the
// command, or does not say whether it does, has none.
func (d *Disk) askWriteSame(ctx context.Context, octets func(blocks uint64, most int64) int64) (int64, error) {
	buf := make([]byte, 64)
	for _, op := range []uint8{0x41, 0x93} { // WRITE SAME(10) and (16): scsi.WriteSame chooses
		cdb := scsi.ReportSupportedOpcode(op, 0, false, uint32(len(buf)))
		r, err := d.command(ctx, cdb[:12], buf, nil)
		var status *StatusError
		if errors.As(err, &status) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		s, err := scsi.ParseSupport(buf[:r.Length])
		if err != nil || !s.Supported {
			return 0, nil
		}
	}
	most := d.limits.MaxWriteSame
	if most == 0 {
		most = math.MaxUint32
	}
	return octets(most, longestExtent), nil
}
