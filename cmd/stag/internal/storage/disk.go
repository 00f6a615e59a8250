package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// disk is a disk with a queue. The ID of each IO is its slot.
type disk struct {
	*iscsi.Disk
	queue  *iscsi.Queue
	op     iscsi.Op
	limit  int64 // octets of one read or write
	got    []iscsi.Completion
	posted []iscsi.IO         // by slot, as the next three
	busy   []bool             // the IO has not completed
	done   []iscsi.Completion // valid when busy is false
	buffer [][1][]byte
}

// openDisk opens the disk of a URL, with a queue of depth slots.
func openDisk(ctx context.Context, url string, cfg iscsi.Config, depth int, op iscsi.Op) (*disk, error) {
	cfg.Depth = depth
	opened, err := iscsi.Dial(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	d := &disk{Disk: opened, op: op, got: make([]iscsi.Completion, depth),
		posted: make([]iscsi.IO, depth), busy: make([]bool, depth), done: make([]iscsi.Completion, depth), buffer: make([][1][]byte, depth)}
	if d.limit, err = mostOctets(ctx, opened); err == nil {
		d.queue, err = opened.Queue(depth)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return d, nil
}

// longest limits a read or write if the unit does not, in octets.
const longest = 8 << 20

// mostOctets returns the length of the longest read or write that a disk takes.
func mostOctets(ctx context.Context, d *iscsi.Disk) (int64, error) {
	most := int64(longest)
	b, err := page(ctx, d, d.LUN(), scsi.PageLimits)
	if refused(err) {
		return most, nil
	}
	if err != nil {
		return 0, err
	}
	l, err := scsi.ParseLimits(b)
	if err == nil && l.MaxTransfer != 0 {
		most = min(most, int64(l.MaxTransfer)*int64(d.BlockSize()))
	}
	return most, err
}

func (d *disk) size() int64  { return d.Size() }
func (d *disk) block() int64 { return int64(d.BlockSize()) }
func (d *disk) most() int64  { return d.limit }

func (d *disk) begin(slot int, p []byte, off int64) error {
	size := int64(d.BlockSize())
	switch n := int64(len(p)); {
	case n%size != 0:
		return fmt.Errorf("the input ends within a block of %d octets: make its length a multiple", size)
	case off+n > d.Size():
		return fmt.Errorf("the input is longer than the disk, which has %d octets", d.Size())
	}
	d.buffer[slot][0] = p
	return d.post(iscsi.IO{ID: uint64(slot), Op: d.op, LBA: uint64(off / size), Buffers: d.buffer[slot][:]})
}

// post posts an IO, whose ID is a slot without one.
func (d *disk) post(io iscsi.IO) error {
	n, err := d.queue.Post(io)
	if err == nil && n != 1 {
		err = errors.New("the queue is full")
	}
	d.posted[io.ID], d.busy[io.ID] = io, err == nil
	return err
}

const (
	mostTries = 20                    // of an IO that the unit does not take at present
	busyTime  = 50 * time.Millisecond // between these tries
)

// result waits for the IO of a slot. It repeats the IO after a unit attention, and while the
// unit is busy.
func (d *disk) result(ctx context.Context, slot int) error {
	for n := 0; ; n++ {
		err := d.wait(ctx, slot)
		later := overloaded(err)
		if err == nil || n == mostTries || !later && !attention(err) {
			return err
		}
		if later {
			select {
			case <-time.After(busyTime):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := d.post(d.posted[slot]); err != nil {
			return err
		}
	}
}

// overloaded reports whether a unit has refused a command because it has too much to do.
func overloaded(err error) bool {
	var status *iscsi.StatusError
	return errors.As(err, &status) && (scsi.Status(status.Status) == scsi.Busy || scsi.Status(status.Status) == scsi.TaskSetFull)
}

// wait waits until the IO of a slot has completed. It returns the error of the IO.
func (d *disk) wait(ctx context.Context, slot int) error {
	for d.busy[slot] {
		n := d.queue.Poll(d.got)
		for _, c := range d.got[:n] {
			d.busy[c.ID], d.done[c.ID] = false, c
		}
		if n == 0 {
			if err := d.queue.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return d.done[slot].Err
}

// cancelTime is how long close waits for IOs that it has canceled.
const cancelTime = 3 * time.Second

// close ends the session. Without well it cancels the IOs in flight.
func (d *disk) close(well bool) error {
	if !well {
		ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
		defer cancel()
		for slot, busy := range d.busy {
			if busy {
				d.queue.Cancel(uint64(slot))
			}
		}
		for slot := range d.busy {
			if d.wait(ctx, slot); ctx.Err() != nil {
				break
			}
		}
	}
	if d.Err() != nil { // the error of an IO has said so already
		d.Close()
		return nil
	}
	return errors.Join(d.queue.Close(), d.Close())
}

// diskSource is a disk from which a copy reads.
type diskSource struct{ *disk }

func (s diskSource) end(ctx context.Context, slot int) (int, error) {
	if err := s.result(ctx, slot); err != nil {
		return 0, err
	}
	return s.done[slot].Length, nil
}

// diskSink is a disk to which a copy writes.
type diskSink struct{ *disk }

func (diskSink) start() error { return nil }

func (s diskSink) end(ctx context.Context, slot int) error {
	if err := s.result(ctx, slot); err != nil {
		return err
	}
	if want, got := len(s.buffer[slot][0]), s.done[slot].Length; s.posted[slot].Op == iscsi.Write && got != want {
		return fmt.Errorf("the target took %d of %d octets of a write", got, want)
	}
	return nil
}

// sync writes the volatile cache of the disk to the medium. A disk without a cache may not
// know the command.
func (s diskSink) sync(ctx context.Context) error {
	if err := s.post(iscsi.IO{ID: 0, Op: iscsi.Sync}); err != nil {
		return err
	}
	if err := s.result(ctx, 0); !refused(err) {
		return err
	}
	return nil
}
