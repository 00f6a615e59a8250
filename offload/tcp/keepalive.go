package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// keepalive is the state of RFC 9293 §3.8.4. It is off while idle is 0.
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

// keepExpired runs when the keepalive timer expires. It first checks whether the connection has been idle, because
// segments do not reset the timer. Then it probes the peer, or gives it up. A single probe without an answer proves
// nothing.
func (c *Conn) keepExpired(now clock.Instant) {
	quiet := now.Sub(c.lastHeard)
	dead := c.probes >= c.keep.count
	if c.userLimit > 0 {
		dead = c.probes > 0 && quiet >= c.userLimit
	}
	switch {
	case c.outstanding() || c.unsent(): // other timers detect a peer that does not answer
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
