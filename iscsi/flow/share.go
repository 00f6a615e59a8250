package flow

import "sync/atomic"

// Share is what one session has of a Pool. The limit of a Share is dynamic: a session may
// hold as much as it leaves free, or an equal part of the pool if that is more. So one busy
// session has most of the pool while the others are idle, and there is always memory for
// another one. A session that holds nothing gets any buffer that the pool has.
//
// Take and Give do not block, lock or allocate. Any goroutine may call them.
type Share struct {
	pool *Pool
	held atomic.Int64 // units
}

// Join makes a Share. The owner calls Leave when it has given all buffers back.
func (p *Pool) Join() *Share {
	p.sharers.Add(1)
	return &Share{pool: p}
}

// Leave ends the Share.
func (s *Share) Leave() { s.pool.sharers.Add(-1) }

// Take returns a buffer of n octets, or nil if the pool has none now, or the session holds
// too much.
func (s *Share) Take(n int) []byte {
	units := int64(sizeOf(n))
	if held := s.held.Add(units); held == units || held <= s.pool.limit(units) {
		if b := s.pool.Take(n); b != nil {
			return b
		}
	}
	s.held.Add(-units)
	return nil
}

// limit returns how many units a Share may hold that takes n units now.
func (p *Pool) limit(n int64) int64 {
	return max(p.free.Load()-n, int64(len(p.used))*64/max(1, p.sharers.Load()))
}

// Give takes a buffer back, as Take returned it.
func (s *Share) Give(b []byte) {
	s.held.Add(-int64(cap(b) / poolUnit))
	s.pool.Give(b)
}
