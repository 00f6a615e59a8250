package afxdp

import (
	"testing"

	"github.com/stag-rdma/stag/afxdp/ring"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// fake is a queue with its rings on the heap. The test plays the kernel.
type fake struct {
	*Queue
	arena *Arena
	fill  ring.Consumer[uint64]
	comp  ring.Producer[uint64]
	rx    ring.Producer[unix.XDPDesc]
	tx    ring.Consumer[unix.XDPDesc]

	// answers are the results of the next system calls. Each call runs its act first.
	answers []answer
	calls   []uintptr
}

type answer struct {
	errno unix.Errno
	act   func()
}

func newFake(t rig.T, c Config) *fake {
	t.Helper()
	c.IfName, c.Ifindex = "test0", 1
	c, err := c.fill()
	rig.Must(t, err)
	f := &fake{Queue: &Queue{cfg: c, fd: 1 << 20}}
	f.Queue.bell.fd = -1
	rig.Must(t, f.resolve())
	f.arena, err = NewArena(3 * c.regionSize())
	rig.Must(t, err)
	// The region does not begin at the start of the arena, so that the offsets differ.
	_, err = f.arena.Cut(c.regionSize())
	rig.Must(t, err)
	r, err := f.arena.Cut(c.regionSize())
	rig.Must(t, err)
	rig.Must(t, f.claim(r))

	start := ^uint32(0) - 5 // the indices wrap soon
	fill := ring.OnHeap[uint64](int(c.FillRing), start)
	comp := ring.OnHeap[uint64](int(c.CompRing), start)
	rx := ring.OnHeap[unix.XDPDesc](int(c.RxRing), start)
	tx := ring.OnHeap[unix.XDPDesc](int(c.TxRing), start)
	tx.Flags.Store(ring.NeedWakeup) // always set, as in copy mode
	f.Queue.fill, f.fill = ends(t, fill)
	f.comp, f.Queue.comp = ends(t, comp)
	f.rx, f.Queue.rx = ends(t, rx)
	f.Queue.tx, f.tx = ends(t, tx)
	f.Queue.sys = f.answer
	return f
}

func (f *fake) close(t rig.T) {
	rig.Must(t, f.Queue.Close())
	rig.Must(t, f.arena.Close())
}

func (f *fake) answer(nr uintptr) unix.Errno {
	f.calls = append(f.calls, nr)
	if len(f.answers) == 0 {
		return 0
	}
	a := f.answers[0]
	f.answers = f.answers[1:]
	if a.act != nil {
		a.act()
	}
	return a.errno
}

// consume takes n descriptors from the transmit ring as the kernel does.
func (f *fake) consume(n int) (got []unix.XDPDesc) {
	for range n {
		d, ok := f.tx.Next()
		if !ok {
			break
		}
		got = append(got, d)
	}
	f.tx.Release()
	return got
}

// complete puts addresses into the completion ring as the kernel does.
func (f *fake) complete(addrs ...uint64) {
	for _, a := range addrs {
		f.comp.Put(a)
	}
	f.comp.Publish()
}

// deliver fills the next chunk with a packet of n octets at offset at.
func (f *fake) deliver(at, n uint32) (unix.XDPDesc, bool) {
	addr, ok := f.fill.Next()
	if !ok {
		return unix.XDPDesc{}, false
	}
	f.fill.Release()
	d := unix.XDPDesc{Addr: addr + uint64(at), Len: n}
	f.rx.Put(d)
	f.rx.Publish()
	return d, true
}

func ends[T any](t rig.T, m ring.Memory[T]) (p ring.Producer[T], c ring.Consumer[T]) {
	t.Helper()
	p, err := ring.NewProducer(m)
	rig.Must(t, err)
	c, err = ring.NewConsumer(m)
	rig.Must(t, err)
	return p, c
}

// small is a configuration with pools and rings that run out soon.
var small = Config{RxFrames: 40, TxFrames: 48, RxRing: 32, TxRing: 32, FillRing: 32, CompRing: 64, Check: true}

func panics(t *testing.T, f func()) (said string) {
	t.Helper()
	defer func() {
		t.Helper()
		s, ok := recover().(string)
		if !ok {
			t.Error("no panic")
		}
		said = s
	}()
	f()
	return ""
}
