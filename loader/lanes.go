package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// SetLane enters fd as the AF_XDP socket of a lane of the adapter. The program takes
// the lane's engine for alive as long as the socket is open. The socket may belong to
// another interface.
func (s *Steering) SetLane(lane uint16, fd int) error {
	if lane >= bpf.Lanes {
		return fmt.Errorf("%s queue %d of an adapter: there is room for %d over all its interfaces: use fewer queues (ethtool -L) or fewer interfaces",
			s.link.Port, lane, bpf.Lanes)
	}
	if err := s.lanes.Put(uint32(lane), uint32(fd)); err != nil {
		return fmt.Errorf("enter the socket of lane %d on %s: %w", lane, s.link.Port, err)
	}
	return nil
}

// laneProbe finds out which lanes have a socket. The kernel tells nobody what a map of
// sockets holds. It only refuses to fill a slot that is filled.
type laneProbe struct {
	lanes *ebpf.Map
	fd    int // of a socket that receives nothing
	known map[uint16]bool
	err   error // what hid the state of a lane
}

func newLaneProbe(lanes *ebpf.Map) (*laneProbe, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket to look for engines: %w", err)
	}
	return &laneProbe{lanes: lanes, fd: fd, known: map[uint16]bool{}}, nil
}

func (p *laneProbe) close() error { return unix.Close(p.fd) }

// lives reports whether the engine of a lane lives, in any process of any container. A
// lane whose state is hidden counts as alive.
func (p *laneProbe) lives(lane uint16) bool {
	if lane >= bpf.Lanes {
		return false
	}
	alive, known := p.known[lane]
	if !known {
		alive = p.look(lane)
		p.known[lane] = alive
	}
	return alive
}

// look fills an empty slot for a moment. Meanwhile the lane seems to have an engine, which
// does no harm: the program keeps the packets of the lane's flows a little longer.
func (p *laneProbe) look(lane uint16) bool {
	err := p.lanes.Update(uint32(lane), uint32(p.fd), ebpf.UpdateNoExist)
	if err == nil {
		err = p.lanes.Delete(uint32(lane))
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		p.err = errors.Join(p.err, fmt.Errorf("look for the engine of lane %d: %w", lane, err))
	}
	return err != nil
}
