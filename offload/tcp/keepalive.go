package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// keepalive is the state of the keepalive timer (RFC 9293 §3.8.4). The timer is off
// while idle is 0.
type keepalive struct {
	idle, interval time.Duration
	count          uint32
}

func newKeepalive(st *State) keepalive {
	k := keepalive{idle: st.Keepalive.Idle, interval: st.Keepalive.Interval, count: uint32(st.Keepalive.Count)}
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

// keepExpired runs when the keepalive timer expires. keepExpired first checks whether
// the connection has been idle, because segments do not reset the timer. Then it probes
// the peer or ends the connection. A single probe without an answer does not end the
// connection.
func (c *Conn) keepExpired(now clock.Instant) {
	quiet := now.Sub(c.patience.lastHeard)
	dead := c.patience.probes >= c.patience.keep.count
	if c.patience.userLimit > 0 {
		dead = c.patience.probes > 0 && quiet >= c.patience.userLimit
	}
	switch {
	case c.outstanding() || c.unsent(): // other timers detect a silent peer
		c.timers.keepAt = now.Add(c.patience.keep.idle)
	case quiet < c.patience.keep.idle:
		c.timers.keepAt = c.patience.lastHeard.Add(c.patience.keep.idle)
	case dead:
		c.reset(stream.ErrTimeout)
	default:
		c.probe = true
		c.patience.probes++
		c.timers.keepAt = now.Add(c.patience.keep.interval)
	}
}
