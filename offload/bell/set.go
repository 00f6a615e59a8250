package bell

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Set is the bells that a goroutine serves beside its other work. The zero Set works. The
// goroutine calls Look in its loop. Before it sleeps it calls Announce, and afterwards
// Withdraw. Its sleep must end when FD is readable. It calls Clear then. Any goroutine may
// call the other methods.
type Set struct {
	some atomic.Bool // the set has bells

	mu      sync.Mutex // guards the fields below; the goroutine holds it while it uses a page
	epoll   int        // tells of writes to the eventfds; valid if there has ever been a bell
	made    bool
	ended   bool
	members []member
	got     [16]unix.EpollEvent
}

type member struct {
	bell *Bell
	lost func()
}

// Add adds a bell. The caller must then wake the goroutine. lost is called, on the goroutine,
// when the bell is not served any more because the goroutine ends.
func (s *Set) Add(b *Bell, lost func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return fmt.Errorf("serve a bell: the goroutine has ended: %w", os.ErrClosed)
	}
	if !s.made {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return fmt.Errorf("serve a bell: %w", os.NewSyscallError("epoll_create1", err))
		}
		s.epoll, s.made = fd, true
	}
	if err := watch(s.epoll, b); err != nil {
		return fmt.Errorf("serve a bell: %w", err)
	}
	s.members = append(s.members, member{b, lost})
	s.some.Store(true)
	return nil
}

// Remove removes a bell. When Remove returns, the goroutine does not use the page any more,
// and ring does not run. ring must not call Remove.
func (s *Set) Remove(b *Bell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.members, func(m member) bool { return m.bell == b })
	if i < 0 {
		return
	}
	_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, b.fd, nil) // it cannot fail: b is in the set
	s.members = slices.Delete(s.members, i, i+1)
	s.some.Store(len(s.members) != 0)
}

// FD returns a descriptor that is readable after writes to the eventfds. It is valid from the
// first Add to End.
func (s *Set) FD() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoll
}

// Some reports whether the set has bells. Look, Announce and Withdraw do nothing if not.
func (s *Set) Some() bool { return s.some.Load() }

// Look calls Look of each bell.
func (s *Set) Look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.members {
		s.members[i].bell.Look()
	}
}

// Announce announces a sleep to all other processes. If a bit is set, Announce returns false,
// and the caller must not sleep.
func (s *Set) Announce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.members {
		if !s.members[i].bell.Announce() {
			for _, m := range s.members[:i] {
				m.bell.Withdraw()
			}
			return false
		}
	}
	return true
}

// Withdraw says that the sleep has ended.
func (s *Set) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.members {
		s.members[i].bell.Withdraw()
	}
}

// Clear makes FD unreadable until the next write.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended {
		if n, _ := unix.EpollWait(s.epoll, s.got[:], 0); n < len(s.got) {
			return // an error is impossible, and clearing can wait for the next sleep
		}
	}
}

// End empties the set, which takes no bell any more, and calls lost for each bell.
func (s *Set) End() {
	s.mu.Lock()
	members := s.members
	s.members, s.ended = nil, true
	s.some.Store(false)
	if s.made {
		unix.Close(s.epoll)
	}
	for _, m := range members {
		m.bell.Withdraw() // the page may be gone when Remove has returned
	}
	s.mu.Unlock()
	for _, m := range members {
		m.lost()
	}
}
