package iscsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/clock"
)

// loginTime limits one attempt to log in again.
const loginTime = 15 * time.Second

// errOther: another unit has the number.
var errOther = errors.New("the unit is not the one that it was")

// attempt logs in again, gives the connection to the flow, and makes sure that the units
// are the same.
func (s *Session) attempt(ctx context.Context, epoch uint64) {
	limited, stop := context.WithTimeout(ctx, loginTime)
	defer stop()
	socks, err := s.connectAll(limited, len(s.conns))
	if err != nil {
		s.tellIn(epoch, func(now clock.Instant) { s.broken(now, err) })
		return
	}
	valid := s.tellIn(epoch, func(clock.Instant) {
		s.begins(socks)
		for i, c := range s.conns {
			c.flow.Restart(socks[i].params)
		}
		s.linked, s.held = true, true
	})
	if !valid {
		closeAll(socks)
		return
	}
	if !s.attachAll(limited, socks) {
		return
	}
	err = s.verify(limited)
	s.tellIn(epoch, func(now clock.Instant) {
		switch {
		case err == nil:
			s.machine.Connected(now, socks[0].params)
		case errors.Is(err, errOther):
			s.machine.Mismatch(err)
		default:
			s.broken(now, err)
		}
	})
}

// attachAll gives the connections to the flows. If one cannot be had, the flow tells the
// session's goroutine.
func (s *Session) attachAll(ctx context.Context, socks []*socket) (ok bool) {
	ok = true
	for i, c := range s.conns {
		if err := c.attach(ctx, socks[i]); err != nil {
			ok = false
			c.flow.Fault(clock.Now(), err) // no step runs
		}
	}
	s.wake()
	return ok
}

// attach gives a connection to the flow.
func (c *sessionConn) attach(ctx context.Context, sock *socket) error {
	done, err := c.s.device.Use()
	if err != nil {
		sock.Close()
		return err
	}
	defer done()
	return c.takeOver(ctx, sock)
}

// verify makes sure that each disk of the session has the unit that it had.
func (s *Session) verify(ctx context.Context) error {
	s.mu.Lock()
	disks := slices.Clone(s.disks)
	s.mu.Unlock()
	for _, d := range disks {
		if err := d.verify(ctx); err != nil {
			return fmt.Errorf("LUN %d: %w", d.lun, err)
		}
	}
	return nil
}

// verify makes sure that the unit is the one that it was: the same designators, size and
// block size. A unit that cannot tell is not there yet.
func (d *Disk) verify(ctx context.Context) error {
	now := &Disk{s: d.s, lun: d.lun, by: &d.s.lead().manage}
	if err := now.ready(ctx); err != nil {
		return err
	}
	buf := make([]byte, 1024)
	if err := now.measure(ctx, buf); err != nil {
		return err
	}
	if now.capacity.Size() != d.capacity.Size() || now.capacity.BlockSize != d.capacity.BlockSize {
		return fmt.Errorf("%w: it had %d octets in blocks of %d, now %d in blocks of %d", errOther, d.Size(), d.BlockSize(), now.Size(), now.BlockSize())
	}
	if d.names == nil {
		return nil
	}
	names, err := now.readNames(ctx, buf)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(names, d.names, func(a, b scsi.Designator) bool { return bytes.Equal(a.Value, b.Value) }) {
		return fmt.Errorf("%w: it was %v, now it is %v", errOther, d.names, names)
	}
	return nil
}

// ready waits until the unit has told its attentions.
func (d *Disk) ready(ctx context.Context) error {
	cdb := scsi.TestUnitReady()
	_, err := d.command(ctx, cdb[:6], nil, nil)
	return err
}

// readNames reads the designators of the unit, without those of its port and target.
func (d *Disk) readNames(ctx context.Context, buf []byte) (names []scsi.Designator, err error) {
	b, err := d.page(ctx, scsi.PageIdentification, buf)
	if err != nil || b == nil {
		return nil, err
	}
	all, err := scsi.ParseIdentification(b)
	for _, n := range all {
		if n.Association == scsi.OfUnit {
			n.Value = bytes.Clone(n.Value) // the disk keeps it, and not all of buf
			names = append(names, n)
		}
	}
	return names, err
}

// report tells of a unit that was reset or powered on.
func (d *Disk) report(e *StatusError) {
	if d.by == nil || scsi.Status(e.Status) != scsi.CheckCondition {
		return
	}
	if sense, err := scsi.ParseSense(e.Sense); err == nil && sense.Key == scsi.UnitAttention && sense.Code>>8 == 0x29 {
		d.s.tellEvent(EventAttention, e)
	}
}

// drain takes the unit attentions of a unit that was reset.
func (s *Session) drain(ctx context.Context, lun uint64) {
	n, ok := scsi.LUN(lun).Number()
	if !ok {
		return
	}
	d := &Disk{s: s, lun: n, by: &s.lead().manage}
	if err := d.ready(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Info("iscsi unit after its reset", "target", s.url.Target, "lun", d.lun, "err", err)
	}
}
