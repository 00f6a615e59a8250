package iscsi_test

import (
	"context"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
)

// TestQueueAllocates: neither end allocates for a command, from Post to Poll. Both ends are
// in this process, over the kernel port.
func TestQueueAllocates(t *testing.T) {
	s := serveOn(t, ram(t, 8<<20), nil)
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
	rig.Must(t, err)
	defer func() { rig.Check(t, d.Close()) }()
	const depth, size = 16, 64 << 10
	q, err := d.Queue(depth)
	rig.Must(t, err)
	ios := make([]iscsi.IO, depth)
	for i := range ios {
		ios[i] = iscsi.IO{ID: uint64(i), Op: iscsi.Op(i % 2), LBA: uint64(i * size / 512), Buffers: [][]byte{make([]byte, size)}}
	}
	got := make([]iscsi.Completion, depth)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	all := func() {
		n, err := q.Post(ios...)
		rig.Must(t, err)
		for n > 0 {
			rig.Must(t, q.Wait(ctx))
			k := q.Poll(got)
			for _, c := range got[:k] {
				rig.Must(t, c.Err)
			}
			n -= k
		}
	}
	for range 50 { // the buffers grow, and the threads are there
		all()
	}
	// Goroutines of the runtime and pings may allocate a little.
	if n := testing.AllocsPerRun(500, all) / depth; n > 0.1 {
		t.Errorf("%v allocations for each command", n)
	}
}
