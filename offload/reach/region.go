package reach

import (
	"errors"
	"fmt"
)

// Region is a part of a Space that peers and work requests can access.
type Region struct {
	space *Space
	addr  uint64 // address of the first octet in the client
	n     uint64
	lead  uint64 // octets from the beginning of the first page to the first octet

	octets []byte // memory, or the reservation
	view   *view  // nil: the octets are a reservation
	why    error  // why the region is not mapped

	class int // place of the reservation
	index uint32
}

// NewRegion makes a region of the n octets from address addr of the client on. The client
// itself must be able to read them and, if write is set, to write to them: otherwise the
// error is ErrNoAccess. The region is mapped if possible.
func NewRegion(s *Space, addr, n uint64, write bool) (*Region, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	r, err := s.region(addr, n, write)
	if err != nil {
		return nil, errors.Join(err, s.leave())
	}
	return r, nil
}

func (s *Space) region(addr, n uint64, write bool) (*Region, error) {
	r := &Region{space: s, addr: addr, n: n, lead: addr % pageSize}
	if err := r.Allows(write); err != nil {
		return nil, err
	}
	if r.octets, r.view, r.why = s.mapped(addr, n); r.why == nil {
		return r, nil
	}
	if err := s.probe(addr, n); err != nil {
		return nil, err
	}
	return r, reserved.reserve(r)
}

// Octets returns the memory of the region, or its reservation.
func (r *Region) Octets() []byte { return r.octets }

// Unmapped returns the reason why the kernel copies each octet of the region, or nil if the
// memory is mapped.
func (r *Region) Unmapped() error { return r.why }

// Allows returns ErrNoAccess unless the client itself may read all of the octets now and,
// if write is set, may write to them.
func (r *Region) Allows(write bool) error {
	if r.n == 0 || r.addr+r.n < r.addr {
		return fmt.Errorf("%d octets from %#x on: a region has at least 1, and ends below 2^64", r.n, r.addr)
	}
	for at := r.addr; at < r.addr+r.n; {
		v, err := r.space.at(at)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrNoAccess, err)
		case v.start > at:
			return fmt.Errorf("%w: nothing is mapped from %#x to %#x", ErrNoAccess, at, min(v.start, r.addr+r.n))
		case !v.readable:
			return fmt.Errorf("%w: it may not read %#x to %#x", ErrNoAccess, at, v.end)
		case write && !v.writable:
			return fmt.Errorf("%w: it may not write to %#x to %#x", ErrNoAccess, at, v.end)
		case r.view != nil && write && !r.view.writable:
			return fmt.Errorf("%w: the region was registered as read-only memory: register it again", ErrNoAccess)
		}
		at = v.end
	}
	return nil
}

// Release ends the use of the octets. No engine may use them any more.
func (r *Region) Release() error {
	if r.view != nil {
		return errors.Join(r.space.unmap(r.view), r.space.leave())
	}
	reserved.giveBack(r)
	return r.space.leave()
}
