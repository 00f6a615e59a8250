package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// keepalive is RFC 9293 §3.8.4; off while idle is 0.
type keepalive struct {
	idle, interval time.Duration
	count          uint32
}

func newKeepalive(st *State) keepalive {
	k := keepalive{idle: st.KeepIdle, interval: st.KeepInterval, count: uint32(st.KeepCount)}
	if k.interval == 0 {
		k.interval = 75 * time.Second
	}
	if k.count == 0 {
		k.count = 9
	}
	return k
}

func (k *keepalive) first(now clock.Instant) clock.Instant {
	if k.idle == 0 {
		return clock.Never
	}
	return now.Add(k.idle)
}

// keepExpired looks whether the connection has really been idle, which the
// timer is not reset for on each segment, and probes the peer or gives it up.
// A single probe without answer proves nothing.
func (c *Conn) keepExpired(now clock.Instant) {
	quiet := now.Sub(c.lastHeard)
	dead := c.probes >= c.keep.count
	if c.userLimit > 0 {
		dead = c.probes > 0 && quiet >= c.userLimit
	}
	switch {
	case c.outstanding() || c.unsent(): // other timers look after the peer
		c.keepAt = now.Add(c.keep.idle)
	case quiet < c.keep.idle:
		c.keepAt = c.lastHeard.Add(c.keep.idle)
	case dead:
		c.reset(stream.ErrTimeout)
	default:
		c.probe = true
		c.probes++
		c.keepAt = now.Add(c.keep.interval)
	}
}
