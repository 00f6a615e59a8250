package iscsi

import (
	"context"
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// pathCalls runs commands over all paths for goroutines that wait for the answer.
type pathCalls struct {
	q    *pathQueue
	room chan struct{} // has an element for each command in flight

	mu      sync.Mutex
	last    uint64 // ID of the newest command
	waiting map[uint64]chan flow.Completion
}

func (c *pathCalls) init(m *multipath) {
	c.room = make(chan struct{}, callSlots)
	c.waiting = make(map[uint64]chan flow.Completion, callSlots)
	c.q = newPathQueue(m, callSlots, c.reap)
	m.queues = append(m.queues, c.q)
}

// reap gives the completions to those who wait for them. It runs after steps, and does not
// block for long.
func (c *pathCalls) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var got [4]flow.Completion
	for {
		n := c.q.poll(got[:])
		for i := range got[:n] {
			c.waiting[got[i].ID] <- got[i]
			delete(c.waiting, got[i].ID)
			<-c.room
		}
		if n != 0 {
			continue
		}
		if c.q.arm(); !c.q.any() {
			return
		}
	}
}

// post posts a command for which there is room.
func (c *pathCalls) post(command flow.Command) (id uint64, done chan flow.Completion, err error) {
	done = make(chan flow.Completion, 1)
	c.mu.Lock()
	c.last++
	id, command.ID = c.last, c.last
	c.waiting[id] = done
	_, err = c.q.post(&command)
	if err != nil {
		delete(c.waiting, id)
		<-c.room
	}
	c.mu.Unlock()
	return id, done, err
}

// do executes a command. If ctx ends before, do cancels the command: the buffers are free
// when do returns.
func (c *pathCalls) do(ctx context.Context, command flow.Command) (got flow.Completion, err error) {
	m := c.q.m
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return got, context.Cause(ctx)
	case <-m.gone:
		return got, m.lost()
	}
	id, done, err := c.post(command)
	if err == flow.ErrEnded {
		err = m.lost()
	}
	if err != nil {
		return got, err
	}
	c.q.ring()
	if !c.q.spin(func() bool { return len(done) != 0 }) {
		c.q.watch()
	}
	select {
	case got = <-done:
	case <-ctx.Done():
		c.q.cancel(id)
		got = <-done
	}
	switch got.Why {
	case flow.OK:
		return got, nil
	case flow.Canceled:
		return got, context.Cause(ctx)
	case flow.Lost:
		return got, m.lost()
	}
	return got, got.Why
}

func (c *pathCalls) execute(ctx context.Context, lun uint16, cdb []byte, in, out [][]byte) (Result, error) {
	got, err := c.do(ctx, flow.Command{LUN: uint64(scsi.LUNOf(lun)), CDB: cdb, In: in, Out: out})
	if err != nil {
		return Result{}, err
	}
	return result(cdb, &got)
}
