package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/progress"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/offload/octets"
)

// blockSize is the size of a block of the disk in octets.
const blockSize = 512

// mover moves octets between side A and the disk.
type mover struct {
	*san
	window
	queue    *iscsi.Queue
	buffers  [][]byte
	progress progress.Meter
	reached  uint64 // octets that the meter knows
}

// moves writes the octets to the disk and reads them back. If there are more octets than
// the disk has, it does so several times.
func (o Options) moves(ctx context.Context, s *san) (all []ISCSIMove, err error) {
	d, err := iscsi.Dial(ctx, s.url(s.server.Addr()), s.config())
	if err != nil {
		return nil, fmt.Errorf("side A: %w", err)
	}
	defer func() { err = and(err, d.Close()) }()
	m := &mover{san: s, window: o.window(), progress: progress.New(o.Progress, "write and read", 2*o.Octets)}
	defer m.progress.End()
	if m.queue, err = d.Queue(m.slots); err != nil {
		return nil, err
	}
	for range m.slots {
		m.buffers = append(m.buffers, make([]byte, m.message))
	}
	all = []ISCSIMove{{Name: "write", From: "A", To: "B"}, {Name: "read", From: "B", To: "A"}}
	for done := uint64(0); done < o.Octets; {
		n := min(uint64(s.disk.Size()), o.Octets-done)
		for i, op := range []iscsi.Op{iscsi.Write, iscsi.Read} {
			if err := m.measure(ctx, &all[i], op, octets.Pattern(1+done), n); err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].Name, errors.Join(err, m.cancel()))
			}
		}
		done += n
	}
	for i := range all {
		all[i].Gbps = float64(8*all[i].Octets) / all[i].Seconds / 1e9
	}
	return all, m.queue.Close()
}

// measure moves n octets of a pattern, and adds the result to what was moved before.
func (m *mover) measure(ctx context.Context, sum *ISCSIMove, op iscsi.Op, p octets.Pattern, n uint64) error {
	to := pair.B
	if op == iscsi.Read {
		to = pair.A
	}
	placed, err := m.counter(ctx, to, "", "placed_octets")
	if err != nil {
		return err
	}
	before, err := m.counts(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	commands, err := m.move(ctx, op, p, n)
	if err == nil && op == iscsi.Write {
		err = m.compare(p, n)
	}
	if err != nil {
		return err
	}
	sum.Seconds += time.Since(begin).Seconds()
	after, err := m.counts(ctx)
	if err != nil {
		return err
	}
	now, err := m.counter(ctx, to, "", "placed_octets")
	sum.Octets, sum.Commands, sum.Placed = sum.Octets+n, sum.Commands+commands, sum.Placed+now-placed
	if d := since(after, before); d != nil {
		if sum.Frames == nil {
			sum.Frames = new([2]Count)
		}
		for i := range d {
			sum.Frames[i].In += d[i].In
			sum.Frames[i].Out += d[i].Out
		}
	}
	return err
}

// move writes n octets of a pattern from the beginning of the disk on, or reads and checks
// them.
func (m *mover) move(ctx context.Context, op iscsi.Op, p octets.Pattern, n uint64) (commands uint64, err error) {
	free := make([]int, 0, m.slots)
	for slot := range m.slots {
		free = append(free, slot)
	}
	places := make([]uint64, m.slots)
	got := make([]iscsi.Completion, m.slots)
	for posted, done := uint64(0), uint64(0); done < n; {
		for len(free) > 0 && posted < n {
			slot := free[len(free)-1]
			free = free[:len(free)-1]
			b := m.part(slot, n-posted)
			if op == iscsi.Write {
				p.Fill(b, posted)
			}
			places[slot] = posted
			if _, err := m.queue.Post(iscsi.IO{ID: uint64(slot), Op: op, LBA: posted / blockSize, Buffers: [][]byte{b}}); err != nil {
				return 0, err
			}
			posted += uint64(len(b))
			commands++
		}
		k := m.queue.Poll(got)
		if k == 0 {
			if err := m.queue.Wait(ctx); err != nil {
				return 0, err
			}
		}
		for i := range got[:k] {
			slot := int(got[i].ID)
			moved, err := m.completed(&got[i], op, p, places[slot], n)
			if err != nil {
				return 0, err
			}
			done += moved
			free = append(free, slot)
		}
	}
	return commands, nil
}

// completed checks a completion of a move of n octets, and returns how many octets it moved.
func (m *mover) completed(c *iscsi.Completion, op iscsi.Op, p octets.Pattern, place, n uint64) (uint64, error) {
	b := m.part(int(c.ID), n-place)
	switch {
	case c.Err != nil:
		return 0, c.Err
	case c.Length != len(b):
		return 0, fmt.Errorf("a command moved %d octets, want %d", c.Length, len(b))
	}
	if op == iscsi.Read {
		if i := p.Differs(b, place); i >= 0 {
			return 0, fmt.Errorf("octet %d is not what was written", place+uint64(i))
		}
	}
	m.reached += uint64(len(b))
	m.progress.Reach(m.reached)
	return uint64(len(b)), nil
}

// part returns the buffer of a slot, for at most left octets.
func (m *mover) part(slot int, left uint64) []byte {
	return m.buffers[slot][:min(uint64(m.message), left)]
}

// compare checks the first n octets of the disk at side B.
func (m *mover) compare(p octets.Pattern, n uint64) error {
	if i := p.Differs(m.disk.Lend(0, int64(n), false), 0); i >= 0 {
		return fmt.Errorf("octet %d of the disk is not what was written", i)
	}
	return nil
}

// cancel ends the commands that are in flight, so that the queue lets go of the buffers.
func (m *mover) cancel() error {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for slot := range m.slots {
		m.queue.Cancel(uint64(slot))
	}
	got := make([]iscsi.Completion, m.slots)
	for m.queue.Close() != nil {
		if m.queue.Poll(got) == 0 {
			if err := m.queue.Wait(ctx); err != nil {
				return nil // the session has ended, and with it the commands
			}
		}
	}
	return nil
}
