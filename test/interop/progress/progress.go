// Package progress tells a row of the matrix that is slow from one that hangs: it counts the
// octets of TCP that a capture shows for the first time.
package progress

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Counter counts octets of TCP. Octets that are sent again do not count.
type Counter struct {
	ends  map[direction]seq.Num // behind the last octet of each direction of a connection
	fresh atomic.Uint64
}

// direction is the sender and the receiver of segments.
type direction struct {
	addresses [32]byte
	ports     [2]uint16
}

// Count takes a frame. One goroutine calls it.
func (c *Counter) Count(frame []byte) {
	var p wire.Packet
	if wire.ParsePacket(frame, &p) != wire.OK || p.ICMP {
		return
	}
	var d direction
	copy(d.addresses[copy(d.addresses[:], p.Src):], p.Dst)
	d.ports = [2]uint16{p.TCP.SrcPort, p.TCP.DstPort}
	n := seq.Len(p.End - p.Payload)
	if c.ends == nil {
		c.ends = map[direction]seq.Num{}
	}
	end, known := c.ends[d]
	if !known || p.TCP.Flags&wire.SYN != 0 {
		end = p.TCP.Seq
	}
	if to := p.TCP.Seq.Add(n); to.After(end) {
		c.fresh.Add(uint64(end.Until(to)))
		end = to
	}
	c.ends[d] = end
}

// leastMoved is how many new octets show that a row moves. It is more than the pings of
// idle iSCSI sessions within a few minutes.
const leastMoved = 16 << 10

// Wait is a wait without an end as long as octets move. A slow machine takes long, and a
// row that hangs moves nothing. One goroutine uses it.
type Wait struct {
	counter *Counter
	limit   time.Duration
	fresh   uint64
	since   time.Time
}

// Wait begins a wait that is stuck when too few octets have moved for the length of limit.
// Any goroutine may call it.
func (c *Counter) Wait(limit time.Duration) *Wait {
	return &Wait{c, limit, c.fresh.Load(), time.Now()}
}

// Stuck reports whether fewer than leastMoved new octets have moved for the length of the
// limit.
func (w *Wait) Stuck() bool {
	if fresh := w.counter.fresh.Load(); fresh-w.fresh >= leastMoved {
		w.fresh, w.since = fresh, time.Now()
	}
	return time.Since(w.since) > w.limit
}
