package bell_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/test/foreign"
)

// made is a bell, what its function was called with, and the other process's side.
type made struct {
	*bell.Bell
	other foreign.Bell
	unmap func()

	calls atomic.Int64
	mu    sync.Mutex
	bits  []int
}

func newBell(t testing.TB) *made {
	t.Helper()
	m := new(made)
	ours, theirs, unmap := foreign.Memory(t, bell.PageLen)
	b, err := bell.New(ours, func(i int) {
		m.mu.Lock()
		m.bits = append(m.bits, i)
		m.mu.Unlock()
		m.calls.Add(1)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	m.Bell, m.unmap = b, unmap
	m.other = foreign.Bell{Page: theirs, FD: b.FD()}
	return m
}

func (m *made) took() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.bits
	m.bits = nil
	slices.Sort(all)
	return all
}

// Every bit of the page is taken once.
func TestBits(t *testing.T) {
	b := newBell(t)
	var want []int
	for i := 0; i < bell.Queues; i += 61 {
		if err := b.other.Ring(i); err != nil {
			t.Fatal(err)
		}
		want = append(want, i)
	}
	if !b.Look() {
		t.Error("Look has found nothing")
	}
	if got := b.took(); !slices.Equal(got, want) {
		t.Errorf("took %v instead of %v", got, want)
	}
	if b.Look() {
		t.Errorf("taken once more: %v", b.took())
	}
	if b.other.Woke != 0 {
		t.Errorf("%d writes to the eventfd of an adapter that is awake", b.other.Woke)
	}
}

// The adapter looks at no bit that is not in use.
func TestBitsInUse(t *testing.T) {
	b := newBell(t)
	for _, c := range []struct{ use, seen, unseen int }{{1, 63, 64}, {64, 63, 64}, {65, 127, 128}, {bell.Queues, bell.Queues - 1, -1}} {
		b.Use(c.use)
		for _, i := range []int{c.seen, c.unseen} {
			if i >= 0 {
				if err := b.other.Ring(i); err != nil {
					t.Fatal(err)
				}
			}
		}
		b.Look()
		if got := b.took(); !slices.Equal(got, []int{c.seen}) {
			t.Errorf("with %d bits in use: took %v instead of %d", c.use, got, c.seen)
		}
		b.Use(bell.Queues)
		b.Look()
		b.took()
	}
}

func TestPageIsChecked(t *testing.T) {
	ours, _, _ := foreign.Memory(t, 2*bell.PageLen)
	for _, memory := range [][]byte{nil, ours, ours[:bell.PageLen-1], ours[1 : bell.PageLen+1]} {
		if _, err := bell.New(memory, func(int) {}); err == nil {
			t.Errorf("%d octets were accepted", len(memory))
		}
	}
}

// A sleep that is announced while a bit is set does not happen.
func TestAnnounce(t *testing.T) {
	b := newBell(t)
	if err := b.other.Ring(200); err != nil {
		t.Fatal(err)
	}
	if b.Announce() {
		t.Error("the adapter may sleep although a bit is set")
	}
	b.Look()
	if !b.Announce() {
		t.Error("the adapter may not sleep although no bit is set")
	}
	if err := b.other.Ring(7); err != nil || b.other.Woke != 1 {
		t.Errorf("%d writes to the eventfd of an adapter that sleeps: %v", b.other.Woke, err)
	}
}

// rounds rings n times. It waits for each call of the function, so that whoever serves the
// bell falls asleep again and again, at every moment of the ring. A lost wake-up lasts for
// ever, and ends the test.
func (m *made) rounds(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if err := m.other.Ring(i % 130); err != nil {
			t.Error(err)
			return
		}
		for range i % 7 * 20 {
			runtime.Gosched()
		}
		for m.calls.Load() <= int64(i) {
			runtime.Gosched()
		}
	}
}

func TestServer(t *testing.T) {
	b := newBell(t)
	s, err := bell.Serve(b.Bell)
	if err != nil {
		t.Fatal(err)
	}
	b.rounds(t, 5000)
	s.Stop()
	if err := b.other.Ring(1); err != nil {
		t.Error(err)
	}
	b.unmap() // Stop has returned: nobody uses the page
	if n := b.calls.Load(); n != 5000 {
		t.Errorf("%d calls for 5000 rings", n)
	}
	t.Logf("%d of the rings woke the goroutine", b.other.Woke)
}

// serveAll is a goroutine that serves the bells of a set beside other work, as an engine does,
// until end is closed.
func serveAll(s *bell.Set, wake int, end <-chan struct{}) error {
	fds := []unix.PollFd{{Fd: int32(s.FD()), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		select {
		case <-end:
			return nil
		default:
		}
		if s.Some() {
			s.Look()
		}
		if s.Some() && !s.Announce() {
			continue
		}
		_, err := unix.Poll(fds, -1)
		if fds[0].Revents != 0 {
			s.Clear()
		}
		s.Withdraw()
		if err != nil && err != unix.EINTR {
			return err
		}
	}
}

// One goroutine serves the bells of several processes, while another bell comes and goes.
func TestSet(t *testing.T) {
	var s bell.Set
	bells := []*made{newBell(t), newBell(t), newBell(t)}
	for _, b := range bells {
		if err := s.Add(b.Bell, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(wake)
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- serveAll(&s, wake, end) }()
	var all sync.WaitGroup
	for _, b := range bells {
		all.Go(func() { b.rounds(t, 2000) })
	}
	for range 50 {
		b := newBell(t)
		if err := s.Add(b.Bell, func() {}); err != nil {
			t.Error(err)
		}
		if err := b.other.Ring(0); err != nil {
			t.Error(err)
		}
		s.Remove(b.Bell)
		b.unmap()
	}
	all.Wait()
	close(end)
	if _, err := unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s.End()
}

// The owner of a bell learns that the goroutine has ended, and can have the bell served by
// another one.
func TestSetEnds(t *testing.T) {
	var s bell.Set
	b := newBell(t)
	lost := 0
	if err := s.Add(b.Bell, func() { lost++ }); err != nil {
		t.Fatal(err)
	}
	s.End()
	if lost != 1 {
		t.Errorf("lost %d times", lost)
	}
	if err := s.Add(b.Bell, func() {}); err == nil {
		t.Error("a set that has ended takes a bell")
	}
	s.Remove(b.Bell)
	server, err := bell.Serve(b.Bell)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	b.rounds(t, 10)
}
