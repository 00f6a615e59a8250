package simnic

import "github.com/stag-rdma/stag/offload/clock"

// flight is a packet in flight. Flights with the same time of arrival arrive in the
// order in which they began.
type flight struct {
	at    clock.Instant
	order uint64
	n     int    // octets of the packet
	mem   []byte // memory with the length of the longest packet
}

func (f flight) before(g flight) bool {
	return f.at < g.at || f.at == g.at && f.order < g.order
}

// sky holds the packets in flight in a binary heap. The next packet to arrive has index
// 0. The flights after the heap are unused, and keep their memory.
type sky struct {
	flights []flight
	up      int // number of flights in the heap
	order   uint64
	size    int // octets of memory of each flight
}

func newSky(size, flights int) sky {
	s := sky{size: size}
	s.grow(flights)
	return s
}

// grow adds memory for n flights in one allocation.
func (s *sky) grow(n int) {
	mem := make([]byte, n*s.size)
	for i := range n {
		s.flights = append(s.flights, flight{mem: mem[i*s.size : (i+1)*s.size : (i+1)*s.size]})
	}
}

// next returns the time at which the next packet arrives.
func (s *sky) next() clock.Instant {
	if s.up == 0 {
		return clock.Never
	}
	return s.flights[0].at
}

// fly copies a packet that arrives at the given time and returns the copy.
func (s *sky) fly(at clock.Instant, packet []byte) []byte {
	if s.up == len(s.flights) {
		s.grow(s.up)
	}
	f := &s.flights[s.up]
	f.at, f.order, f.n = at, s.order, copy(f.mem, packet)
	copied := f.mem[:f.n]
	s.order++
	s.up++
	s.rise(s.up - 1)
	return copied
}

// land removes and returns the packet that arrives next. The packet is valid until the
// next call of fly.
func (s *sky) land() []byte {
	f := s.flights[0]
	s.up--
	s.flights[0], s.flights[s.up] = s.flights[s.up], f
	s.sink(0)
	return f.mem[:f.n]
}

func (s *sky) rise(i int) {
	for i > 0 {
		above := (i - 1) / 2
		if !s.flights[i].before(s.flights[above]) {
			return
		}
		s.flights[i], s.flights[above] = s.flights[above], s.flights[i]
		i = above
	}
}

func (s *sky) sink(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < s.up && s.flights[child].before(s.flights[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		s.flights[i], s.flights[least] = s.flights[least], s.flights[i]
		i = least
	}
}
