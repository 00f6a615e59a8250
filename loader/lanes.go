package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// Lanes are the slots of an adapter in the map of lanes. All interfaces of an instance
// share the map, so the adapters of several processes may have slots in it. A Lanes is
// not safe for concurrent use, except Slot.
type Lanes struct {
	slots *ebpf.Map
	lane  uint16 // the first lane of the adapter that has a slot here
	first uint16 // the slot of that lane
	count int
	fd    int // a socket that receives nothing; it fills the slots until Set
}

// ReserveLanes reserves consecutive slots that no other adapter has, for n lanes of an
// adapter from the given lane on. A slot stays reserved until its socket is closed or,
// without a socket of its own, until Close.
func (s *Steering) ReserveLanes(lane uint16, n int) (*Lanes, error) {
	fd, err := LaneSocket()
	if err != nil {
		return nil, err
	}
	l := &Lanes{slots: s.lanes, lane: lane, count: n, fd: fd}
	for next := 0; next+n <= bpf.Lanes; {
		l.first = uint16(next)
		taken, err := l.fill()
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, ebpf.ErrKeyExist) {
			return nil, errors.Join(fmt.Errorf("reserve lane %d on %s: %w", taken, s.link.Port, err), l.Close())
		}
		next = taken + 1
	}
	return nil, errors.Join(fmt.Errorf("%s has no room for %d receive queues beside those of other engines of the instance, %d in all: use fewer queues (ethtool -L), or load the interfaces as several instances",
		s.link.Port, n, bpf.Lanes), l.Close())
}

// fill fills the slots from l.first on. If another adapter has one of these slots, fill
// empties the slots that it has filled. It then returns the number of the other
// adapter's slot and ebpf.ErrKeyExist.
func (l *Lanes) fill() (taken int, err error) {
	first := int(l.first)
	for slot := first; slot < first+l.count; slot++ {
		err := l.slots.Update(uint32(slot), uint32(l.fd), ebpf.UpdateNoExist)
		if err == nil {
			continue
		}
		for ours := first; ours < slot; ours++ {
			if failed := l.slots.Delete(uint32(ours)); failed != nil {
				return ours, failed
			}
		}
		return slot, err
	}
	return 0, nil
}

// Slot returns the slot of a lane of the adapter. The slot is the Owner of the flows of
// the lane's engine, in this instance's flow map.
func (l *Lanes) Slot(lane uint16) uint16 { return l.first + lane - l.lane }

// Holds reports whether a lane of the adapter has a slot here.
func (l *Lanes) Holds(lane uint16) bool { return int(lane-l.lane) < l.count }

// has reports whether a slot is one of l.
func (l *Lanes) has(slot uint16) bool { return int(slot-l.first) < l.count }

// Set enters fd as the AF_XDP socket of a lane of the adapter. The program takes the
// lane's engine for alive as long as the socket is open. The socket may belong to an
// interface of another instance.
func (l *Lanes) Set(lane uint16, fd int) error {
	if !l.Holds(lane) {
		return fmt.Errorf("enter the socket of lane %d: %d are reserved from %d on", lane, l.count, l.lane)
	}
	if err := l.slots.Put(uint32(l.Slot(lane)), uint32(fd)); err != nil {
		return fmt.Errorf("enter the socket of lane %d: %w", lane, err)
	}
	return nil
}

// Close closes the socket that fills the unused slots. The kernel then empties these
// slots.
func (l *Lanes) Close() error { return unix.Close(l.fd) }

// LaneSocket makes a socket that receives nothing, because it is bound to no queue. Newer
// kernels (7.3 among them) take a socket into a map only if the socket has a receive ring, so
// it has one, of one slot.
func LaneSocket() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make a socket for the map of lanes: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 1); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("make the ring of a socket for the map of lanes: %w", err)
	}
	return fd, nil
}

// laneProbe finds out which slots of the map of lanes are filled. The kernel does not
// show the contents of a map of sockets. laneProbe therefore tries to fill a slot. The
// kernel refuses that if the slot is filled already.
type laneProbe struct {
	slots *ebpf.Map
	fd    int
	known map[uint16]bool
	err   error // errors of slots whose state could not be found out
}

func newLaneProbe(slots *ebpf.Map) (*laneProbe, error) {
	fd, err := LaneSocket()
	if err != nil {
		return nil, err
	}
	return &laneProbe{slots: slots, fd: fd, known: map[uint16]bool{}}, nil
}

func (p *laneProbe) close() error { return unix.Close(p.fd) }

// lives reports whether the engine of a slot lives, in any process of any container. It
// returns true if the state of the slot cannot be found out.
func (p *laneProbe) lives(slot uint16) bool {
	if slot >= bpf.Lanes {
		return false
	}
	alive, known := p.known[slot]
	if !known {
		alive = p.look(slot)
		p.known[slot] = alive
	}
	return alive
}

// look reports whether a slot is filled, or cannot be tested. It fills an empty slot
// for a moment. Meanwhile the slot seems to have an engine. This does no harm: the
// program keeps the packets of the engine's flows a little longer, and ReserveLanes
// takes other slots.
func (p *laneProbe) look(slot uint16) bool {
	err := p.slots.Update(uint32(slot), uint32(p.fd), ebpf.UpdateNoExist)
	if err == nil {
		err = p.slots.Delete(uint32(slot))
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		p.err = errors.Join(p.err, fmt.Errorf("look for the engine of lane %d: %w", slot, err))
	}
	return err != nil
}
