package iscsi

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// check tells whether n octets from off on are whole blocks of the disk.
func (d *Disk) check(what string, n int64, off int64) error {
	if size := int64(d.BlockSize()); off < 0 || off%size != 0 || n%size != 0 {
		return fmt.Errorf("iscsi: %s %d octets at %d: %w, %d", what, n, off, ErrAlignment, size)
	}
	return nil
}

// ReadAt implements io.ReaderAt. len(p) and off must be multiples of the block size. It
// returns io.EOF if the disk ends before. A long p takes several commands, of which up to 8
// are in flight.
func (d *Disk) ReadAt(p []byte, off int64) (n int, err error) {
	if err := d.check("read", int64(len(p)), off); err != nil {
		return 0, err
	}
	want := int64(len(p))
	if left := d.Size() - off; want > left {
		p, err = p[:max(0, left)], io.EOF
	}
	n, failed := d.transfer(p, off, false)
	if failed != nil {
		return n, failed
	}
	return n, err
}

// WriteAt implements io.WriterAt. len(p) and off must be multiples of the block size. A long
// p takes several commands, of which up to 8 are in flight. If one fails, n is the number of
// octets in front of it, and any octets behind may have been written too.
func (d *Disk) WriteAt(p []byte, off int64) (n int, err error) {
	if err := d.check("write", int64(len(p)), off); err != nil {
		return 0, err
	}
	if off > d.Size() || int64(len(p)) > d.Size()-off {
		return 0, fmt.Errorf("iscsi: write %d octets at %d: the disk ends at %d", len(p), off, d.Size())
	}
	return d.transfer(p, off, true)
}

// atOnce is how many commands of one ReadAt or WriteAt are in flight.
const atOnce = 8

// transfer reads or writes p, in commands that the unit takes. n is the number of octets in
// front of the first command that has failed.
func (d *Disk) transfer(p []byte, off int64, write bool) (n int, err error) {
	if len(p) <= d.most {
		return d.part(p, off, write)
	}
	done := make([]struct {
		n   int
		err error
	}, (len(p)+d.most-1)/d.most)
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			k := int(next.Add(1)) - 1
			if k >= len(done) {
				return
			}
			at := k * d.most
			x := &done[k]
			if x.n, x.err = d.part(p[at:min(len(p), at+d.most)], off+int64(at), write); x.err != nil {
				failed.Store(true)
			}
		}
	}
	var all sync.WaitGroup
	for range min(atOnce, len(done)) {
		all.Go(work)
	}
	all.Wait()
	for _, x := range done {
		if n += x.n; x.err != nil {
			return n, x.err
		}
	}
	return n, nil
}

// part reads or writes p in one command.
func (d *Disk) part(p []byte, off int64, write bool) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	size := d.BlockSize()
	lba, blocks := uint64(off)/uint64(size), uint32(len(p)/size)
	var r Result
	if write {
		cdb := scsi.Write(lba, blocks, 0)
		r, err = d.command(context.Background(), length(&cdb), nil, p)
	} else {
		cdb := scsi.Read(lba, blocks, 0)
		r, err = d.command(context.Background(), length(&cdb), p, nil)
	}
	switch {
	case err != nil:
		return 0, err
	case r.Length != len(p):
		return r.Length, fmt.Errorf("iscsi: the target transferred %d of %d octets at %d", r.Length, len(p), off)
	}
	return r.Length, nil
}

// length returns the octets of a CDB that its operation code has (SPC-4 §4.2.5.1).
func length(c *scsi.CDB) []byte {
	switch c[0] >> 5 {
	case 0:
		return c[:6]
	case 1, 2:
		return c[:10]
	case 5:
		return c[:12]
	}
	return c[:16]
}

// Sync writes the unit's volatile cache to the medium.
func (d *Disk) Sync() error {
	cdb := scsi.SynchronizeCache(0, 0)
	_, err := d.command(context.Background(), length(&cdb), nil, nil)
	return err
}

// Discard tells the unit that n octets from off on are not needed any more (UNMAP). The
// unit must support it.
func (d *Disk) Discard(off, n int64) error {
	if err := d.check("discard", n, off); err != nil {
		return err
	}
	size := int64(d.BlockSize())
	most := int64(d.limits.MaxUnmap)
	if most == 0 {
		return fmt.Errorf("iscsi: discard %d octets at %d: the unit has no UNMAP", n, off)
	}
	for n > 0 {
		blocks := min(n/size, most, 1<<31)
		b := scsi.AppendUnmap(nil, []scsi.Extent{{LBA: uint64(off / size), Blocks: uint32(blocks)}})
		cdb := scsi.Unmap(uint16(len(b)))
		if _, err := d.command(context.Background(), length(&cdb), nil, b); err != nil {
			return err
		}
		off, n = off+blocks*size, n-blocks*size
	}
	return nil
}

// WriteZeroes writes zeros to n octets from off on (WRITE SAME).
func (d *Disk) WriteZeroes(off, n int64) error {
	return d.WriteSame(make([]byte, d.BlockSize()), off, n)
}

// WriteSame writes block, which is one logical block, again and again to n octets from off on
// (WRITE SAME).
func (d *Disk) WriteSame(block []byte, off, n int64) error {
	if err := d.check("write the same block to", n, off); err != nil {
		return err
	}
	size := int64(d.BlockSize())
	if int64(len(block)) != size {
		return fmt.Errorf("iscsi: write the same block: it has %d octets, and a block of the disk has %d", len(block), size)
	}
	most := int64(d.limits.MaxWriteSame)
	if most == 0 || most > 1<<16-1 {
		most = 1<<16 - 1 // what WRITE SAME(10) can say
	}
	for n > 0 {
		blocks := min(n/size, most)
		cdb := scsi.WriteSame(uint64(off/size), uint32(blocks), 0)
		if _, err := d.command(context.Background(), length(&cdb), nil, block); err != nil {
			return err
		}
		off, n = off+blocks*size, n-blocks*size
	}
	return nil
}
