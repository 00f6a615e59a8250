package rdma

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
)

// stream is what there is to know of the flow of a packet: nothing when it has no
// QP that is known.
func (c *capture) stream(f flowOf, r tap.Record) report.Stream {
	if s, known := c.known[f]; known || f.id == 0 {
		return s
	}
	qp := c.qps[f]
	if qp == nil && !c.asked {
		c.asked = true
		c.learn()
		qp = c.qps[f]
	}
	if qp == nil {
		qp = c.connecting(r)
	}
	s, known := report.Stream{}, true
	if qp != nil {
		s = qp.stream(f)
	} else {
		s, known = c.a.tapped.departed(f)
	}
	if !known {
		return s
	}
	c.known[f] = s
	c.streams = append(c.streams, s)
	return s
}

// stream is what there is to know of the QP's connection.
func (qp *QP) stream(f flowOf) report.Stream {
	conn := qp.Conn()
	return report.Stream{
		Device: f.port.name, Flow: uint32(f.id), QP: qp.Number(), Initiator: conn.Initiator, Revision: conn.Revision,
		CRC: conn.CRC, SendMarkers: conn.SendMarkers, RecvMarkers: conn.RecvMarkers,
	}
}

// maxDeparted is how many QPs are remembered whose packets captures may still
// have to hand over.
const maxDeparted = 4096

// depart keeps what captures that run may want to know of a QP that is closed.
func (c *captures) depart(qp *QP) {
	l := qp.line.Load()
	if l == nil {
		return
	}
	f, ok := l.flowID()
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return
	}
	if c.past == nil || len(c.past) == maxDeparted {
		c.past = map[flowOf]report.Stream{}
	}
	c.past[f] = qp.stream(f)
}

// departed is what depart kept.
func (c *captures) departed(f flowOf) (s report.Stream, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known = c.past[f]
	return s, known
}

// learn notes the flows of all QPs, and which QPs are about to get theirs. What
// was known of flows that are gone is forgotten when it is the most of it.
func (c *capture) learn() {
	clear(c.qps)
	c.newcomers = c.newcomers[:0]
	for _, qp := range c.a.allQPs() {
		if f, ok := c.flow(qp); ok {
			c.qps[f] = qp
		} else if qp.Conn().Local.IsValid() {
			c.newcomers = append(c.newcomers, qp)
		}
	}
	if len(c.known) > 4096+2*len(c.qps) {
		clear(c.known)
	}
}

// connecting is the QP whose connection is being taken over and has the ends of
// the packet r; nil when there is none.
func (c *capture) connecting(r tap.Record) *QP {
	if len(c.newcomers) == 0 {
		return nil
	}
	var p wire.Packet
	frame := append(r.Data[:len(r.Data):len(r.Data)], make([]byte, r.Length-len(r.Data))...) // the parser wants all of it
	if wire.ParsePacket(frame, &p) != wire.OK || p.ICMP {
		return nil
	}
	from, to := plainEnd(p.Src, p.TCP.SrcPort), plainEnd(p.Dst, p.TCP.DstPort)
	if r.Out {
		from, to = to, from
	}
	for _, qp := range c.newcomers {
		if conn := qp.Conn(); withoutZone(conn.Remote) == from && withoutZone(conn.Local) == to {
			return qp
		}
	}
	return nil
}

func plainEnd(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip) // 4 or 16 octets
	return netip.AddrPortFrom(a, port)
}

func withoutZone(e netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(e.Addr().Unmap().WithZone(""), e.Port())
}
