package adapter

import (
	"sync"

	"github.com/stag-rdma/stag/offload/bell"
)

// servedBell is a bell that an engine or a goroutine serves.
type servedBell struct {
	adapter *Adapter
	bell    *bell.Bell

	mu     sync.Mutex // guards the fields below
	remove func()     // ends the serving; nil: nobody serves the bell
	over   bool       // Stop was called
}

// ServeBell makes the adapter serve a bell until stop is called. An engine of a port serves
// it between its steps, so that a post needs no other goroutine. If the port goes, an engine
// of another port serves it. If no engine can, a goroutine does: with KernelPort, and with
// ports that cannot wait for bells.
//
// When stop returns, the page of the bell is not used any more and no function of the bell
// runs. Such a function must not call stop.
func (a *Adapter) ServeBell(b *bell.Bell) (stop func(), err error) {
	s := &servedBell{adapter: a, bell: b}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.place(); err != nil {
		return nil, err
	}
	return s.stop, nil
}

// place finds somebody who serves the bell. The caller must hold s.mu.
func (s *servedBell) place() error {
	for _, p := range s.adapter.Ports() {
		if remove, err := p.nic.AddBell(s.bell, s.lost); err == nil {
			s.remove = remove
			return nil
		}
	}
	server, err := bell.Serve(s.bell)
	if err != nil {
		return err
	}
	s.remove = server.Stop
	return nil
}

// lost runs on the goroutine of an engine that ends, which has already removed the bell.
func (s *servedBell) lost() {
	s.adapter.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove = nil
		if s.over {
			return
		}
		if err := s.place(); err != nil {
			s.adapter.log.Error("a bell of another process is not served any more", "err", err)
		}
	})
}

func (s *servedBell) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.remove != nil {
		s.remove()
		s.remove = nil
	}
}
