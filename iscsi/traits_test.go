package iscsi_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestTraits: what disks tell of themselves, and what a queue then does beyond reads and
// writes.
func TestTraits(t *testing.T) {
	r := rig.On(t)
	own := func(change func(*iscsi.LUN)) *iscsi.Disk {
		s := serveOn(t, ram(t, 64<<20), func(c *iscsi.ServerConfig) {
			l := c.Targets[0].LUNs[1]
			change(&l)
			c.Targets[0].LUNs[1] = l
		})
		d, err := iscsi.Dial(r.Ctx(), url(s, "", ""), iscsi.Config{})
		r.Must(err)
		t.Cleanup(func() { r.Check(d.Close()) })
		return d
	}
	for name, c := range map[string]struct {
		d    *iscsi.Disk
		want iscsi.Traits
	}{
		"stag": {own(func(l *iscsi.LUN) { l.BlockSize, l.MaxTransfer, l.PhysicalExp = 512, 1<<17, 3 }), iscsi.Traits{
			WriteCache: true, FUA: true, PhysicalBlock: 4096, Transfer: 1 << 17, Optimal: 1 << 17, Discard: 512 << 20, DiscardUnit: 4096, WriteZeroes: 65535 * 512,
		}},
		"read only": {own(func(l *iscsi.LUN) { l.BlockSize, l.ReadOnly = 4096, true }), iscsi.Traits{
			ReadOnly: true, WriteCache: true, FUA: true, PhysicalBlock: 4096, Transfer: 1 << 20, Optimal: 1 << 20, DiscardUnit: 4096,
		}},
		"tgtd": {newStage(t, "kernel port", tgtd.Config{}).dial("", iscsi.Config{}), iscsi.Traits{
			WriteCache: true, FUA: true, PhysicalBlock: 4096, Transfer: 1 << 20, Discard: 1 << 30, DiscardUnit: 512, WriteZeroes: 1 << 30,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.d.Traits(r.Ctx())
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
			if !got.ReadOnly {
				withoutBuffers(t, c.d, got)
			}
		})
	}
}

// withoutBuffers writes zeros to a part of the disk, discards another, and writes with FUA.
func withoutBuffers(t *testing.T, d *iscsi.Disk, traits iscsi.Traits) {
	r := rig.On(t)
	q, err := d.Queue(8)
	r.Must(err)
	defer func() { r.Check(q.Close()) }()
	do := func(io iscsi.IO) {
		t.Helper()
		n, err := q.Post(io)
		if n != 1 || err != nil {
			t.Fatalf("post %+v: %d, %v", io, n, err)
		}
		got := make([]iscsi.Completion, 1)
		for q.Poll(got) == 0 {
			r.Must(q.Wait(r.Ctx()))
		}
		if got[0].ID != io.ID || got[0].Err != nil {
			t.Fatalf("op %d: %+v", io.Op, got[0])
		}
	}
	data := random(64<<10, 15)
	do(iscsi.IO{ID: 1, Op: iscsi.Write, FUA: true, Buffers: [][]byte{data}})
	want := bytes.Clone(data)
	do(iscsi.IO{ID: 2, Op: iscsi.WriteZeroes, LBA: 8, Blocks: 16})
	clear(want[8*512 : 24*512])
	if traits.Discard != 0 {
		do(iscsi.IO{ID: 3, Op: iscsi.Discard, LBA: 64, Blocks: 32})
		clear(want[64*512 : 96*512])
	}
	do(iscsi.IO{ID: 4, Op: iscsi.Sync})
	got := make([]byte, len(data))
	do(iscsi.IO{ID: 5, Op: iscsi.Read, Buffers: [][]byte{got}})
	if !bytes.Equal(got, want) {
		t.Error("other octets come back")
	}
	if n, err := q.Post(iscsi.IO{Op: iscsi.WriteZeroes + 1}); n != 0 || err == nil {
		t.Errorf("an unknown Op: %d, %v", n, err)
	}
}
