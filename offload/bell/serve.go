package bell

import (
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// looks is how often a Server looks in vain before it sleeps. It gives its processor away
// after each.
const looks = 64

// Server is a goroutine that serves one bell.
type Server struct {
	bell  *Bell
	news  *os.File // the epoll that tells of writes to the bell's eventfd
	stop  atomic.Bool
	ended chan struct{}
}

// Serve starts a goroutine that serves b. The caller must end it with Stop.
func Serve(b *Bell) (*Server, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := watch(fd, b); err != nil {
		unix.Close(fd)
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for the poller of package os
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &Server{bell: b, news: os.NewFile(uintptr(fd), "bell"), ended: make(chan struct{})}
	raw, err := s.news.SyscallConn()
	if err != nil {
		s.news.Close()
		return nil, err
	}
	go s.run(raw)
	return s, nil
}

// watch adds the eventfd of b to an epoll.
func watch(epoll int, b *Bell) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(b.fd)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, b.fd, &event))
}

// Stop ends the goroutine. When Stop returns, ring does not run any more, and the page is
// not accessed. ring must not call Stop.
func (s *Server) Stop() {
	s.stop.Store(true) // the other process may ring without end
	s.news.Close()
	<-s.ended
}

func (s *Server) run(raw syscall.RawConn) {
	defer close(s.ended)
	for !s.stop.Load() {
		for vain := 0; vain < looks && !s.stop.Load(); vain++ {
			if s.bell.Look() {
				vain = 0
			}
			runtime.Gosched()
		}
		if !s.bell.Announce() {
			continue
		}
		var got [1]unix.EpollEvent
		err := raw.Read(func(fd uintptr) (written bool) {
			n, err := unix.EpollWait(int(fd), got[:], 0)
			return n > 0 || err != nil
		})
		s.bell.Withdraw()
		if err != nil {
			return // Stop has closed news
		}
	}
}
