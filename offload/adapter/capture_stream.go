package adapter

import (
	"net/netip"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
)

// stream returns the Stream of the connection of a packet's flow. stream returns the
// zero Stream if no layer knows a connection for the flow, unless the flow is one of
// iSCSI.
func (c *capture) stream(f flowOf, r tap.Record) report.Stream {
	if s, known := c.known[f.id]; known || f.id == 0 {
		return s
	}
	s, known := c.conns[f.id]
	if !known && !c.asked {
		c.asked = true
		c.learn()
		s, known = c.conns[f.id]
	}
	if !known {
		s, known = c.connecting(f, r)
	}
	if !known {
		s, known = c.adapter.tapped.departed(f)
	}
	if c.isISCSI(f.id) {
		s.Device, s.Flow, s.Kind, known = f.port.name, uint32(f.id), report.ISCSI, true
	}
	if !known {
		return s
	}
	c.known[f.id] = s
	c.streams = append(c.streams, s)
	return s
}

// isISCSI reports whether a port has a flow of kind iSCSI with this number.
func (c *capture) isISCSI(id engine.FlowID) bool {
	for _, p := range c.adapter.Ports() {
		if kind, ok := p.nic.Kind(id); ok {
			return kind == bpf.KindISCSI
		}
	}
	return false
}

// stream returns the Stream that captures get for the connection, whose flow is f.
func (c *Connection) stream(f flowOf) report.Stream {
	s := c.Stream
	s.Device, s.Flow = f.port.name, uint32(f.id)
	return s
}

// maxDeparted is how many closed connections a capture remembers. A capture may still
// have to hand over packets of closed connections.
const maxDeparted = 4096

// Depart keeps the Stream of a connection for running captures. A layer must call
// Depart before it forgets the connection.
func (a *Adapter) Depart(conn Connection) {
	f, ok := conn.Conn.flowID()
	if !ok {
		return
	}
	c := a.tapped
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return
	}
	if c.past == nil || len(c.past) == maxDeparted {
		c.past = map[engine.FlowID]report.Stream{}
	}
	c.past[f.id] = conn.stream(f)
}

// departed returns the stream that Depart has kept for f.
func (c *captures) departed(f flowOf) (s report.Stream, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, known = c.past[f.id]
	return s, known
}

// connections lists the connections of all layers.
func (a *Adapter) connections() (all []Connection) {
	for _, l := range a.reporters() {
		all = append(all, l.Connections()...)
	}
	return all
}

// learn reads the flows of all connections, and lists the connections that are about to
// get a flow. If most of the streams that f has received belong to flows that are gone,
// learn forgets those streams.
func (c *capture) learn() {
	clear(c.conns)
	c.newcomers = c.newcomers[:0]
	for _, conn := range c.adapter.connections() {
		if f, ok := conn.Conn.flowID(); ok {
			c.conns[f.id] = conn.stream(f)
		} else if conn.Local.IsValid() {
			c.newcomers = append(c.newcomers, conn)
		}
	}
	if len(c.known) > 4096+2*len(c.conns) {
		clear(c.known)
	}
}

// connecting returns the stream of the connection that is being taken over and has the
// addresses and ports of the packet r. known is false if there is no such connection.
func (c *capture) connecting(f flowOf, r tap.Record) (s report.Stream, known bool) {
	if len(c.newcomers) == 0 {
		return s, false
	}
	var p wire.Packet
	// the parser needs a frame of the whole length
	frame := append(r.Data[:len(r.Data):len(r.Data)], make([]byte, r.Length-len(r.Data))...)
	if wire.ParsePacket(frame, &p) != wire.OK || p.ICMP {
		return s, false
	}
	from, to := plainEnd(p.Src, p.TCP.SrcPort), plainEnd(p.Dst, p.TCP.DstPort)
	if r.Out {
		from, to = to, from
	}
	for i := range c.newcomers {
		if conn := &c.newcomers[i]; withoutZone(conn.Remote) == from && withoutZone(conn.Local) == to {
			return conn.stream(f), true
		}
	}
	return s, false
}

func plainEnd(ip []byte, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip) // ip has 4 or 16 octets
	return netip.AddrPortFrom(a, port)
}

func withoutZone(e netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(e.Addr().Unmap().WithZone(""), e.Port())
}
