package iscsi_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// load keeps IOs in flight on a disk. Each block has one writer at a time. The test fails if
// an IO fails, completes twice, or reads other octets than were written last.
type load struct {
	t     *testing.T
	d     *iscsi.Disk
	q     *iscsi.Queue
	size  int
	block []block
	done  atomic.Int64 // IOs that have completed
}

// block is a piece of the disk. It is written, then read, then written anew.
type block struct {
	io    iscsi.IO
	want  []byte
	busy  bool
	round int
}

func newLoad(t *testing.T, d *iscsi.Disk, depth, size int) *load {
	t.Helper()
	l := &load{t: t, d: d, size: size, block: make([]block, depth)}
	var err error
	if l.q, err = d.Queue(depth); err != nil {
		t.Fatal(err)
	}
	return l
}

// run posts and polls until stop says so and nothing is in flight.
func (l *load) run(r *rig.Stage, stop func() bool) {
	l.t.Helper()
	got := make([]iscsi.Completion, 8)
	for flying := 0; ; {
		ended := stop()
		for i := range l.block {
			if !l.block[i].busy && !ended {
				l.post(i)
				flying++
			}
		}
		if flying == 0 {
			return
		}
		r.Must(l.q.Wait(r.Ctx()))
		n := l.q.Poll(got)
		for i := range got[:n] {
			l.completed(&got[i])
		}
		flying -= n
	}
}

func (l *load) post(i int) {
	l.t.Helper()
	b := &l.block[i]
	lba := uint64(i) * uint64(l.size/l.d.BlockSize())
	if b.round++; b.round%2 == 1 {
		b.want = random(l.size, uint64(i*1000+b.round))
		b.io = iscsi.IO{ID: uint64(i), Op: iscsi.Write, LBA: lba, Buffers: [][]byte{b.want[:l.size/2], b.want[l.size/2:]}}
	} else {
		b.io = iscsi.IO{ID: uint64(i), Op: iscsi.Read, LBA: lba, Buffers: [][]byte{make([]byte, l.size)}}
	}
	b.busy = true
	if n, err := l.q.Post(b.io); n != 1 || err != nil {
		l.t.Fatalf("post: %d, %v", n, err)
	}
}

func (l *load) completed(c *iscsi.Completion) {
	l.t.Helper()
	b := &l.block[c.ID]
	if !b.busy {
		l.t.Fatalf("IO %d completed twice", c.ID)
	}
	b.busy = false
	l.done.Add(1)
	if c.Err != nil || c.Length != l.size {
		l.t.Fatalf("IO %d: %d octets, %v", c.ID, c.Length, c.Err)
	}
	if b.io.Op == iscsi.Read && !bytes.Equal(b.io.Buffers[0], b.want) {
		l.t.Fatalf("IO %d read wrong octets", c.ID)
	}
}

// outages runs the load while a function breaks the connection a few times.
func outages(r *rig.Stage, l *load, times int, outage func()) {
	r.Helper()
	end := make(chan struct{})
	go func() {
		defer close(end)
		for range times {
			from := l.done.Load()
			rig.Eventually(r, "the IOs go on", func() bool { return l.done.Load() > from+200 })
			outage()
		}
		from := l.done.Load()
		rig.Eventually(r, "the IOs go on", func() bool { return l.done.Load() > from+200 })
	}()
	l.run(r, func() bool {
		select {
		case <-end:
			return true
		default:
			return false
		}
	})
	r.Must(l.q.Close())
}

// TestTargetRestarts kills tgtd in the middle of verified writes and reads, and starts it
// again: each IO completes once, and no octet is wrong.
func TestTargetRestarts(t *testing.T) {
	for _, carrier := range carriers {
		for _, size := range []int{4 << 10, 256 << 10} {
			t.Run(fmt.Sprint(carrier, " ", size), func(t *testing.T) {
				s := newStage(t, carrier, tgtd.Config{})
				var ups, attentions atomic.Int32
				d := s.dial("", iscsi.Config{Events: func(e iscsi.Event) {
					switch e.Kind {
					case iscsi.EventUp:
						ups.Add(1)
					case iscsi.EventAttention:
						attentions.Add(1)
					}
				}})
				outages(&s.Stage, newLoad(t, d, 16, size), 2, func() {
					s.target.Kill()
					s.target.Run()
				})
				if ups.Load() < 2 || attentions.Load() < 2 {
					t.Errorf("%d logins, %d unit attentions", ups.Load(), attentions.Load())
				}
			})
		}
	}
}

// TestServerRestarts closes our own target in the middle of verified writes and reads, and
// opens it again with the same disk.
func TestServerRestarts(t *testing.T) {
	for _, carrier := range carriers {
		for _, arguments := range []string{"", "?header_digest=crc32c&data_digest=crc32c"} {
			t.Run(carrier+arguments, func(t *testing.T) {
				s := newServing(t, carrier)
				d, err := iscsi.Dial(s.Ctx(), url(s.server, "", arguments), iscsi.Config{Adapter: s.adapters[ours]})
				s.Must(err)
				defer func() { s.Check(d.Close()) }()
				outages(&s.Stage, newLoad(t, d, 16, 64<<10), 3, func() {
					s.Must(s.server.Close())
					time.Sleep(50 * time.Millisecond) // attempts meet a closed port
					s.open()
				})
			})
		}
	}
}

// serving is our own target in one namespace, and an adapter in the other.
type serving struct {
	rig.Stage
	adapters map[pair.Side]*rdma.Adapter
	address  string
	disk     *backend.RAM
	server   *iscsi.Server
}

func newServing(t *testing.T, carrier string) *serving {
	t.Helper()
	s := &serving{Stage: rig.On(t), disk: ram(t, 64<<20)}
	var p *pair.Pair
	p, s.adapters = bothEnds(t, carrier)
	s.address = netip.AddrPortFrom(p.Ends[theirs].V4.Addr(), 3260).String()
	s.open()
	return s
}

// open starts the target.
func (s *serving) open() {
	s.Helper()
	s.server = serveOn(s, s.disk, func(c *iscsi.ServerConfig) {
		c.Adapter, c.Address = s.adapters[theirs], s.address
		c.Wishes.HeaderDigest = []login.Digest{login.CRC32C, login.NoDigest}
		c.Wishes.DataDigest = c.Wishes.HeaderDigest
	})
}
