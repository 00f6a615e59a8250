package loader_test

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// laneSocket makes an AF_XDP socket for the map of lanes. The test closes it.
func laneSocket(t *testing.T) (fd int) {
	t.Helper()
	fd, err := loader.LaneSocket()
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestLaneSocketHasARing demands the ring without which newer kernels refuse a socket (ENOBUFS)
// when it is put into a map. Only a ring that exists can be mapped.
func TestLaneSocketHasARing(t *testing.T) {
	need.XDP(t)
	fd := laneSocket(t)
	defer unix.Close(fd)
	ring, err := unix.Mmap(fd, unix.XDP_PGOFF_RX_RING, unix.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatalf("the socket has no receive ring: %v", err)
	}
	unix.Munmap(ring)
}

// mustReserve reserves n lanes and demands which slot the first one has.
func mustReserve(t *testing.T, s *loader.Steering, n int, first uint16) *loader.Lanes {
	t.Helper()
	l, err := s.ReserveLanes(0, n)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Slot(0); got != first {
		t.Fatalf("%d lanes begin at slot %d, want %d", n, got, first)
	}
	return l
}

func mustClose(t *testing.T, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// Adapters whose interfaces share a flow map have different slots of its map of lanes. A
// slot is free again when its socket is closed, or when the reservation is, if it has no
// socket.
func TestLanes(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	a := mustLoad(t, p, loader.Options{})
	b, err := loadB(t, p, loader.Options{With: a})
	if err != nil {
		t.Fatal(err)
	}
	ofA := mustReserve(t, a, 3, 0)
	ofB := mustReserve(t, b, 2, 3)
	fd := laneSocket(t)
	if err := ofA.Set(1, fd); err != nil {
		t.Fatal(err)
	}
	mustClose(t, ofA) // slots 0 and 2 are free, and 1 is not
	one := mustReserve(t, b, 1, 0)
	two := mustReserve(t, b, 2, 5)
	mustClose(t, ofB)
	mustClose(t, mustReserve(t, b, 3, 2))
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	mustClose(t, one)
	mustClose(t, mustReserve(t, b, 5, 0))
	mustClose(t, two)

	all := mustReserve(t, a, bpf.Lanes, 0)
	_, err = b.ReserveLanes(0, 1)
	rig.Says(t, err, nil, b.Link().Port, "1 receive queues", "ethtool -L")
	mustClose(t, all)
	if _, err := b.ReserveLanes(0, bpf.Lanes+1); err == nil {
		t.Error("more lanes than there are were reserved")
	}
	mustClose(t, mustReserve(t, b, 1, 0)) // and nothing is left of that
}

// Adapters that reserve at the same time get different slots.
func TestLanesReservedAtOnce(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{})
	const adapters, each = 16, 5
	all := make([]*loader.Lanes, adapters)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			var err error
			if all[i], err = s.ReserveLanes(0, each); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[uint16]bool{}
	for _, l := range all {
		for lane := range uint16(each) {
			if seen[l.Slot(lane)] {
				t.Errorf("two adapters have slot %d", l.Slot(lane))
			}
			seen[l.Slot(lane)] = true
		}
		mustClose(t, l)
	}
}

// A lane that is not reserved has no slot.
func TestLaneBeyondThoseReserved(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	l := mustReserve(t, mustLoad(t, p, loader.Options{}), 2, 0)
	defer l.Close()
	fd := laneSocket(t)
	defer unix.Close(fd)
	if err := l.Set(1, fd); err != nil {
		t.Error(err)
	}
	if err := l.Set(2, fd); err == nil {
		t.Error("a lane too many is accepted")
	}
}
