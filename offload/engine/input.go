package engine

import (
	"encoding/binary"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// ahead is how many packets before its turn the headers of a packet are prefetched. The
// kernel has written the headers on another processor. Waiting for them costs as much
// as parsing them.
const ahead = 2

// receive processes the frames that have arrived at the port since the last step.
func (e *Engine) receive() {
	got := e.batch[:e.port.Receive(e.batch)]
	for i, fr := range got {
		if i+ahead < len(got) {
			e.prefetch(got[i+ahead])
		}
		e.count.RxPackets++
		e.count.RxOctets += uint64(fr.Len)
		if len(e.tapped) != 0 {
			e.tapReceived(fr)
		}
		e.input(fr)
	}
	if len(got) != 0 {
		e.worked = true
	}
}

func (e *Engine) prefetch(fr port.Frame) {
	wire.Prefetch(e.port.Record(fr))
	wire.Prefetch(e.port.Bytes(fr))
}

// input brings one packet to its flow. Afterwards the frame belongs to the flow or to
// another engine, or will be given back.
func (e *Engine) input(fr port.Frame) {
	b := e.port.Bytes(fr)
	if why := wire.ParsePacket(b, &e.pkt); why != wire.OK {
		e.count.parse[why]++
		e.release(fr)
		return
	}
	f, owner, why := e.find(fr)
	switch {
	case why != 0:
		e.count.drops[why]++
		e.release(fr)
	case owner == noLane || (owner == e.lane && f.conn == nil && !f.lingers):
		e.park(f, fr)
	case owner != e.lane:
		e.passTo(owner, fr)
	case e.pkt.ICMP:
		e.tooBig(f, b, fr)
	default:
		e.segment(f, b, fr)
	}
}

// find looks up the flow that e.pkt belongs to, and the lane that owns the flow. The
// flow id in the steering record saves the hash. find uses that id only if the packet
// agrees with it. find never uses the owner in the record, because the owner in the
// directory is the valid one. If this engine does not have the flow, f is nil and owner
// is the lane that gets the flow's segments. f may be a flow without an owner.
func (e *Engine) find(fr port.Frame) (f *flow, owner Lane, why Drop) {
	key := keyOf(&e.pkt)
	if rec, ok := bpf.ParseRecord(e.port.Record(fr)); ok {
		id := rec.Flow()
		if f = e.flow(id); f != nil && f.key == key {
			if _, tagged := rec.STag(); tagged {
				e.count.Tagged++
			}
			return e.ownerOf(f)
		}
		if at, ok := e.elsewhere(id, &key); ok {
			return nil, at, 0
		}
		e.count.StaleRecords++
	}
	e.count.Unrecorded++
	if f = e.tuples[key]; f != nil {
		return e.ownerOf(f)
	}
	if len(e.lanes.engines) != 0 {
		if _, at, ok := e.dir.ByKey(&key); ok && at != e.lane {
			return nil, at, 0
		}
	}
	return nil, 0, DropNoFlow
}

// ownerOf is find for a flow that this engine knows.
func (e *Engine) ownerOf(f *flow) (_ *flow, owner Lane, why Drop) {
	owner, ok := e.dir.owner(f.id)
	if !ok {
		return nil, 0, DropNoFlow
	}
	return f, owner, 0
}

// elsewhere returns the other lane to which segments of flow id go. ok is false if no
// other lane has the flow, or if the flow has another key.
func (e *Engine) elsewhere(id FlowID, key *bpf.FlowKey) (at Lane, ok bool) {
	if len(e.lanes.engines) == 0 {
		return 0, false
	}
	k, at, ok := e.dir.Find(id)
	return at, ok && k == *key && at != e.lane
}

// keyOf returns the flow key of a received packet. For an ICMP error it returns the key
// of the flow whose segment the error quotes. That segment is one that this end has
// sent.
func keyOf(p *wire.Packet) (k bpf.FlowKey) {
	remote, local := p.Src, p.Dst
	remotePort, localPort := p.TCP.SrcPort, p.TCP.DstPort
	if p.ICMP {
		remote, local = p.TooBig.Dst, p.TooBig.Src
		remotePort, localPort = p.TooBig.DstPort, p.TooBig.SrcPort
	}
	copy(k.Remote[:], remote)
	copy(k.Local[:], local)
	binary.BigEndian.PutUint16(k.RemotePort[:], remotePort)
	binary.BigEndian.PutUint16(k.LocalPort[:], localPort)
	k.VLAN = p.VLAN
	k.Family = uint8(p.Family)
	return k
}

// segment gives a TCP segment to its connection.
func (e *Engine) segment(f *flow, b []byte, fr port.Frame) {
	why := e.pkt.VerifyChecksum(b, e.cfg.AcceptPartial)
	if e.pkt.Partial {
		e.count.PartialSums++
	}
	if why == wire.PartialChecksum {
		e.refusePartial(f)
	}
	if why != wire.OK {
		e.count.parse[why]++
		e.release(fr)
		return
	}
	f.unsummed = false
	s := &e.seg
	s.TCPFields = e.pkt.TCP
	s.Payload = e.pkt.Data(b)
	s.Frame = fr
	s.CE = e.pkt.CE

	e.mark(f)
	f.arrivals.segments++
	if !e.ofOurPort(fr) {
		e.arrivedElsewhere(f, fr.Home)
	}
	if f.lingers {
		e.lingering(f, s)
		e.release(fr)
		return
	}
	if s.Flags&wire.RST != 0 && f.conn.Arrived() {
		f.ulp.Receive(e.now, f.conn) // the upper layer reads earlier octets first: they may contain the reason, and a reset discards them
	}
	kept, drop := f.conn.Receive(e.now, s)
	e.count.tcp[drop]++
	if kept {
		f.keep(fr)
	} else {
		e.release(fr)
	}
}

// unsummedAfter is how long a peer may send only segments whose checksum has not been
// computed. unsummedAfter is shorter than the time after which Linux sends a segment
// again.
const unsummedAfter = 100 * time.Millisecond

// refusePartial ends f if its peer has sent only segments without a computed checksum
// for the time unsummedAfter. Otherwise f would continue until a timeout, and neither
// end would get the reason. refusePartial counts only segments that begin with the next
// expected octet, because a peer sends such a segment again. A sender that guesses
// sequence numbers can therefore not end a connection with two packets.
func (e *Engine) refusePartial(f *flow) {
	switch {
	case f.conn == nil || !f.conn.Expects(e.pkt.TCP.Seq):
	case !f.unsummed:
		f.unsummed, f.unsummedSince = true, e.now
	case e.now.Sub(f.unsummedSince) >= unsummedAfter:
		f.conn.AbortFor(e.cfg.Unsummed)
		e.mark(f)
	}
}

// tooBig passes a path MTU report to the connection that it concerns.
func (e *Engine) tooBig(f *flow, b []byte, fr port.Frame) {
	why := e.pkt.VerifyChecksum(b, false)
	if why != wire.OK {
		e.count.parse[why]++
	} else if f.conn != nil {
		t := &e.pkt.TooBig
		e.count.tcp[f.conn.TooBig(e.now, t.Seq, uint16(min(t.MTU, 0xffff)))]++
		e.mark(f)
	}
	e.release(fr)
}
