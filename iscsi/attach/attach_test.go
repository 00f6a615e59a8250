package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/iscsi/nbd"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/test/rig"
)

const target = "iqn.2026-01.test.stag:attach"

// medium is memory whose writes and flushes can fail, and which counts them.
type medium struct {
	*backend.RAM
	fails  atomic.Bool
	syncs  atomic.Int64
	writes atomic.Int64
}

var errMedium = errors.New("the medium fails")

func (m *medium) WriteAt(p []byte, off int64) (int, error) {
	m.writes.Add(1)
	if m.fails.Load() {
		return 0, errMedium
	}
	return m.RAM.WriteAt(p, off)
}

func (m *medium) Sync() error {
	m.syncs.Add(1)
	return m.RAM.Sync()
}

// Lend hides the method of RAM, so that writes go through WriteAt.
func (m *medium) Lend() {}

// serve starts a target with a disk.
func serve(t testing.TB, address string, l iscsi.LUN) *iscsi.Server {
	t.Helper()
	s, err := iscsi.Serve(context.Background(), iscsi.ServerConfig{
		Address: address, Targets: []iscsi.TargetConfig{{Name: target, LUNs: map[uint16]iscsi.LUN{1: l}}},
	})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, s.Close()) })
	return s
}

// volume logs in to a disk.
func volume(t testing.TB, s *iscsi.Server, readOnly bool) *Volume {
	t.Helper()
	d, err := iscsi.Dial(context.Background(), fmt.Sprintf("iscsi://%s/%s/1", s.Addr(), target), iscsi.Config{Depth: 512})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, d.Close()) })
	v, err := NewVolume(context.Background(), d, readOnly)
	rig.Must(t, err)
	return v
}

func ram(t testing.TB, size int64) *backend.RAM {
	t.Helper()
	b, err := backend.NewRAM(size)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, b.Close()) })
	return b
}

// run executes requests, and returns them when all have completed.
func run(t testing.TB, q block.Queue, rs ...*block.Request) {
	t.Helper()
	n, err := q.Submit(rs...)
	if n != len(rs) || err != nil {
		t.Fatalf("submit: %d, %v", n, err)
	}
	got := make([]*block.Request, 4)
	for left := n; left != 0; {
		k := q.Poll(got)
		if left -= k; k == 0 {
			rig.Must(t, q.Wait(t.Context()))
		}
	}
}

func random(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// TestRequests: requests longer than the unit permits, and more of them than the session has
// places for parts, move the right octets.
func TestRequests(t *testing.T) {
	s := serve(t, "127.0.0.1:0", iscsi.LUN{Backend: ram(t, 64<<20), BlockSize: 512, MaxTransfer: 64 << 10})
	v := volume(t, s, false)
	q, err := v.Queue(4)
	rig.Must(t, err)
	defer func() { rig.Check(t, q.Close()) }()
	want := random(64<<20, 1)
	const part = 16 << 20
	var writes, reads []*block.Request
	got := make([]byte, len(want))
	for off := 0; off < len(want); off += part {
		writes = append(writes, &block.Request{Op: block.Write, Offset: int64(off), Length: part, Data: want[off : off+part]})
		reads = append(reads, &block.Request{Op: block.Read, Offset: int64(off), Length: part, Data: got[off : off+part]})
	}
	zeros := []*block.Request{
		{Op: block.WriteZeroes, Offset: 512, Length: 40 << 20, FUA: true}, {Op: block.Discard, Offset: 50 << 20, Length: 1 << 20, FUA: true}, {Op: block.Flush},
	}
	run(t, q, writes...)
	run(t, q, zeros...)
	run(t, q, reads...)
	clear(want[512 : 512+40<<20])
	clear(want[50<<20 : 51<<20])
	for _, r := range append(append(writes, zeros...), reads...) {
		if r.Err != nil || r.Flying != 0 {
			t.Errorf("op %d at %d: %v, %d parts in flight", r.Op, r.Offset, r.Err, r.Flying)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other octets come back")
	}
}

// TestFUA: a write with FUA, and zeros with FUA, are stable at the completion; other writes
// are not.
func TestFUA(t *testing.T) {
	m := &medium{RAM: ram(t, 1<<20)}
	v := volume(t, serve(t, "127.0.0.1:0", iscsi.LUN{Backend: m, BlockSize: 512}), false)
	q, err := v.Queue(4)
	rig.Must(t, err)
	defer func() { rig.Check(t, q.Close()) }()
	for _, c := range []struct {
		r    block.Request
		want int64
	}{
		{block.Request{Op: block.Write, Length: 512, Data: make([]byte, 512)}, 0},
		{block.Request{Op: block.Write, Length: 512, Data: make([]byte, 512), FUA: true}, 1},
		{block.Request{Op: block.WriteZeroes, Length: 4096}, 0},
		{block.Request{Op: block.WriteZeroes, Length: 4096, FUA: true}, 1},
		{block.Request{Op: block.Flush}, 1},
	} {
		before := m.syncs.Load()
		run(t, q, &c.r)
		if n := m.syncs.Load() - before; n != c.want || c.r.Err != nil {
			t.Errorf("%+v: %d syncs, want %d; %v", c.r, n, c.want, c.r.Err)
		}
	}
}

// TestErrors: an error of the medium ends the request only, also if it has several parts.
func TestErrors(t *testing.T) {
	m := &medium{RAM: ram(t, 8<<20)}
	s := serve(t, "127.0.0.1:0", iscsi.LUN{Backend: m, BlockSize: 512, MaxTransfer: 64 << 10})
	v := volume(t, s, false)
	q, err := v.Queue(2)
	rig.Must(t, err)
	defer func() { rig.Check(t, q.Close()) }()
	m.fails.Store(true)
	r := &block.Request{Op: block.Write, Length: 8 << 20, Data: make([]byte, 8<<20)}
	run(t, q, r)
	if block.Errno(r.Err) != syscall.EIO || m.writes.Load() > 16 {
		t.Errorf("%v after %d writes", r.Err, m.writes.Load())
	}
	m.fails.Store(false)
	r = &block.Request{Op: block.Write, Length: 512, Data: make([]byte, 512)}
	if run(t, q, r); r.Err != nil {
		t.Error(r.Err)
	}
	if err := v.Shape(); err.ReadOnly || volume(t, s, true).Shape().ReadOnly != true {
		t.Error("ReadOnly")
	}
}

// TestVerdicts: what a status means for a request.
func TestVerdicts(t *testing.T) {
	sense := func(key scsi.Key, code scsi.Code) error {
		return &iscsi.StatusError{Status: uint8(scsi.CheckCondition), Sense: []byte{0x70, 0, byte(key), 0, 0, 0, 0, 10, 0, 0, 0, 0, byte(code >> 8), byte(code), 0, 0, 0, 0}}
	}
	status := func(s scsi.Status) error { return &iscsi.StatusError{Status: uint8(s)} }
	cached, plain := &Volume{shape: block.Shape{WriteCache: true}}, &Volume{}
	for i, c := range []struct {
		v    *Volume
		op   block.Op
		err  error
		what verdict
		want syscall.Errno
	}{
		{cached, block.Read, nil, done, 0},
		{cached, block.Read, status(scsi.Busy), later, syscall.EIO},
		{cached, block.Write, status(scsi.TaskSetFull), later, syscall.EIO},
		{cached, block.Write, status(scsi.ReservationConflict), failed, syscall.EPERM},
		{cached, block.Read, status(scsi.CheckCondition), failed, syscall.EIO},
		{cached, block.Read, sense(scsi.UnitAttention, 0x2900), again, syscall.EIO},
		{cached, block.Write, sense(scsi.DataProtect, scsi.WriteProtected), failed, syscall.EPERM},
		{cached, block.Write, sense(scsi.DataProtect, scsi.SpaceAllocationFailed), failed, syscall.ENOSPC},
		{cached, block.Flush, sense(scsi.IllegalRequest, 0x2000), failed, syscall.EIO},
		{plain, block.Flush, sense(scsi.IllegalRequest, 0x2000), done, 0},
		{plain, block.Write, sense(scsi.IllegalRequest, 0x2000), failed, syscall.EIO},
		{plain, block.Write, iscsi.ErrUncertain, failed, syscall.EIO},
	} {
		if what, err := c.v.judge(c.op, c.err); what != c.what || block.Errno(err) != c.want {
			t.Errorf("%d: %v, %v, want %v, %v", i, what, err, c.what, c.want)
		}
	}
}

// TestOutage: requests wait while the target is away, and a client of an export sees nothing
// but time. A Cancel ends what waits.
func TestOutage(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	open := func() backend.Medium {
		b, err := backend.OpenFile(disk, backend.FileOptions{Create: true, Size: 16 << 20})
		rig.Must(t, err)
		return b
	}
	b := open()
	s := serve(t, "127.0.0.1:0", iscsi.LUN{Backend: b, BlockSize: 512, Serial: "1"})
	v := volume(t, s, false)
	socket := filepath.Join(t.TempDir(), "nbd")
	l, err := net.Listen("unix", socket)
	rig.Must(t, err)
	server, err := nbd.Serve(l, nbd.Config{Volume: v, Depth: 16})
	rig.Must(t, err)
	defer func() { rig.Check(t, server.Close()) }()
	client, err := backend.OpenNBD(t.Context(), "nbd+unix:///?socket="+socket)
	rig.Must(t, err)
	defer client.Close()
	var moved atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for g := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				want, got := random(128<<10, byte(g*16+i)), make([]byte, 128<<10)
				if _, err := client.WriteAt(want, int64(g)<<22); err != nil {
					t.Error(err)
					return
				}
				if _, err := client.ReadAt(got, int64(g)<<22); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v, equal %v", err, bytes.Equal(got, want))
					return
				}
				moved.Add(1)
			}
		})
	}
	address := netip.AddrPort.String(s.Addr())
	for range 2 {
		from := moved.Load()
		rig.Eventually(t, "clients go on", func() bool { return moved.Load() > from+20 })
		rig.Must(t, s.Close())
		rig.Must(t, b.Close())
		b = open()
		s = serve(t, address, iscsi.LUN{Backend: b, BlockSize: 512, Serial: "1"})
	}
	from := moved.Load()
	rig.Eventually(t, "clients go on", func() bool { return moved.Load() > from+20 })
	close(stop)
	clients.Wait()
	rig.Must(t, s.Close())
	rig.Must(t, b.Close())
	canceled(t, v)
}

// canceled cancels requests to a target that is gone.
func canceled(t *testing.T, v *Volume) {
	q, err := v.Queue(2)
	rig.Must(t, err)
	r := &block.Request{Op: block.Write, Length: 8 << 20, Data: make([]byte, 8<<20)}
	n, err := q.Submit(r)
	if n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	time.AfterFunc(50*time.Millisecond, q.Cancel)
	got := make([]*block.Request, 1)
	for q.Poll(got) == 0 {
		rig.Must(t, q.Wait(t.Context()))
	}
	if r.Err == nil {
		t.Error("a write to a target that is gone has succeeded")
	}
	rig.Must(t, q.Close())
}

// TestLost: requests fail when the session has ended.
func TestLost(t *testing.T) {
	v := volume(t, serve(t, "127.0.0.1:0", iscsi.LUN{Backend: ram(t, 1<<20), BlockSize: 512}), false)
	q, err := v.Queue(2)
	rig.Must(t, err)
	rig.Must(t, v.disk.Close())
	if n, err := q.Submit(&block.Request{Op: block.Flush}); n != 0 || !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("%d, %v", n, err)
	}
	if err := q.Wait(t.Context()); !errors.Is(err, iscsi.ErrSessionLost) {
		t.Errorf("wait: %v", err)
	}
}

// TestProbe: a driver that this kernel has not is an error that names its module.
func TestProbe(t *testing.T) {
	if _, err := Probe("loop"); err == nil || !strings.Contains(err.Error(), "choose ublk or nbd") {
		t.Error(err)
	}
	for _, d := range Drivers {
		if err := d.probe(); err != nil && !strings.Contains(err.Error(), "module "+d.module) {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
}

// TestPaths: requests to a disk with two paths go on when one of them ends, and fail when
// both have ended.
func TestPaths(t *testing.T) {
	l := iscsi.LUN{Backend: ram(t, 16<<20), BlockSize: 512, Serial: "1"}
	first, second := serve(t, "127.0.0.1:0", l), serve(t, "127.0.0.1:0", l)
	d, err := iscsi.Dial(context.Background(), fmt.Sprintf("iscsi://%s/%s/1?path=%s", first.Addr(), target, second.Addr()),
		iscsi.Config{Depth: 64, RecoveryTimeout: time.Second})
	rig.Must(t, err)
	defer d.Close() // its paths have ended
	v, err := NewVolume(context.Background(), d, false)
	rig.Must(t, err)
	q, err := v.Queue(4)
	rig.Must(t, err)
	want, got := random(4<<20, 2), make([]byte, 4<<20)
	for range 2 {
		w := &block.Request{Op: block.Write, Length: 4 << 20, Data: want}
		r := &block.Request{Op: block.Read, Length: 4 << 20, Data: got}
		run(t, q, w)
		run(t, q, r)
		if w.Err != nil || r.Err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v, %v, equal %v", w.Err, r.Err, bytes.Equal(got, want))
		}
		clear(got)
		rig.Must(t, first.Close())
	}
	rig.Must(t, second.Close())
	r := &block.Request{Op: block.Flush}
	if n, err := q.Submit(r); n == 1 {
		for q.Poll(make([]*block.Request, 1)) == 0 {
			rig.Must(t, q.Wait(t.Context()))
		}
	} else if err == nil {
		t.Error("neither taken nor refused")
	} else {
		r.Err = err
	}
	if block.Errno(r.Err) != syscall.EIO {
		t.Errorf("%v", r.Err)
	}
	rig.Check(t, q.Close())
}
