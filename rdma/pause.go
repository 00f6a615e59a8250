package rdma

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// silentPatience is how long a hand-over waits for the Requests of peers that have
// connected. Peers that have sent none by then are dropped.
const silentPatience = time.Second

// pauseEvery is how often a pause looks whether every request has been answered.
const pauseEvery = time.Millisecond

// pauseListeners stops all Listeners from accepting connections, which wait in the kernel's
// queues, and waits until the program has answered every request. If ctx ends first, the
// Listeners accept again.
func (a *Adapter) pauseListeners(ctx context.Context) error {
	all := a.listeners()
	for _, l := range all {
		l.pause()
	}
	for began := time.Now(); ; {
		n := a.unanswered(all, time.Since(began) > silentPatience)
		if n == 0 {
			return nil
		}
		select {
		case <-time.After(pauseEvery):
		case <-ctx.Done():
			a.resumeListeners()
			return fmt.Errorf("%d connection requests wait for an answer: %w", n, context.Cause(ctx))
		}
	}
}

func (a *Adapter) resumeListeners() {
	for _, l := range a.listeners() {
		l.resume()
	}
}

func (a *Adapter) listeners() (list []*Listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.loose {
		if l, ok := c.(*Listener); ok {
			list = append(list, l)
		}
	}
	return list
}

// unanswered counts the peers of paused Listeners that wait for something. drop ends the
// connections of peers that have sent no Request.
func (a *Adapter) unanswered(list []*Listener, drop bool) (n int) {
	for _, l := range list {
		n += l.waiting(drop)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.loose {
		if _, ok := c.(*ConnRequest); ok {
			n++
		}
	}
	return n
}

// pause makes admitAll rest until resume.
func (l *Listener) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again == nil {
		l.again = make(chan struct{})
		l.socket.SetDeadline(time.Unix(1, 0)) // an error means that the Listener is closed
	}
}

// resume ends pause. Descriptors of the socket in other processes may have changed its mode.
func (l *Listener) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again == nil {
		return
	}
	if raw, err := l.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), true) }) // an error means that the Listener is closed
	}
	l.socket.SetDeadline(time.Time{})
	close(l.again)
	l.again, l.rests = nil, false
}

// rest waits for the end of a pause, or for Close.
func (l *Listener) rest() {
	l.mu.Lock()
	again := l.again
	l.rests = again != nil
	l.mu.Unlock()
	if again == nil {
		return
	}
	select {
	case <-again:
	case <-l.life.Done():
	}
}

// waiting counts the peers that are being accepted, that have sent no Request, or whose
// Request waits for its turn or for Accept.
func (l *Listener) waiting(drops bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.ready) + l.heard
	if !l.rests && l.life.Err() == nil {
		n++
	}
	l.silent.all(func(g *greeting) {
		if n++; drops {
			drop(g.c)
		}
	})
	return n
}

// file returns another descriptor of the listening socket.
func (l *Listener) file() (*os.File, error) { return l.socket.File() }

// inheritListener makes a Listener of a socket of another process. It takes the file over.
func (a *Adapter) inheritListener(f *os.File, cfg ListenConfig) (*Listener, error) {
	defer f.Close()
	s, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	socket, ok := s.(*net.TCPListener)
	if !ok {
		s.Close()
		return nil, fmt.Errorf("a listening socket of %v", s.Addr().Network())
	}
	return a.newListener(socket, cfg)
}
