package dump

import (
	"net/netip"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Dissectors find RDMA in a connection only after the MPA Request and Reply. The kernels
// exchange the Request and the Reply before the engine has the connection. Therefore a
// file has two packets that stand for them, before the first captured packet.

// standsFor is the comment of a packet that stands for the Request or the Reply.
const standsFor = "not captured: stands for the MPA %s that the kernel exchanged before the engine had the connection, so that what follows can be dissected; its private data is left out, and sequence numbers end where the capture begins"

// handshake returns the frames with the Request and the Reply. The caller writes them
// before p, the first packet of a connection. ok is false if p does not have both sequence
// numbers. ok is also false if the streams have Markers, because the places of Markers in
// the handshake's octets would be unknown.
func handshake(p report.Packet, s report.Stream) (frames [2][]byte, ok bool) {
	var v wire.Packet
	whole := append(p.Data[:len(p.Data):len(p.Data)], make([]byte, max(0, p.Length-len(p.Data)))...)
	if s.SendMarkers || s.RecvMarkers || wire.ParsePacket(whole, &v) != wire.OK || v.ICMP || v.TCP.Flags&wire.ACK == 0 || len(p.Data) < v.Payload {
		return frames, false
	}
	f := wire.MPAFields{Revision: uint8(s.Revision)}
	if s.CRC {
		f.Flags = wire.MPACRC
	}
	request := f.Append(nil)
	f.Reply = true
	reply := f.Append(nil)
	here := wire.HeaderFields{
		DstMAC: wire.MAC(v.DstMAC(whole)), SrcMAC: wire.MAC(v.SrcMAC(whole)), VLAN: v.VLAN, TTL: 64,
		Src: netip.AddrPortFrom(address(v.Src), v.TCP.SrcPort), Dst: netip.AddrPortFrom(address(v.Dst), v.TCP.DstPort),
	}
	there := here
	there.DstMAC, there.SrcMAC, there.Src, there.Dst = here.SrcMAC, here.DstMAC, here.Dst, here.Src
	from, to := here, there               // from is the initiator's end, to is the responder's end
	asks, answers := v.TCP.Seq, v.TCP.Ack // sequence numbers at which the two streams begin
	if p.Out != s.Initiator {
		from, to, asks, answers = to, from, answers, asks
	}
	h := wire.TCPFields{Flags: wire.PSH | wire.ACK, Window: v.TCP.Window}
	h.Seq, h.Ack = asks.Back(seq.Len(len(request))), answers.Back(seq.Len(len(reply)))
	if frames[0], ok = assemble(from, h, request); !ok {
		return frames, false
	}
	h.Seq, h.Ack = h.Ack, asks
	frames[1], ok = assemble(to, h, reply)
	return frames, ok
}

// assemble returns a complete frame.
func assemble(f wire.HeaderFields, h wire.TCPFields, payload []byte) ([]byte, bool) {
	head, err := wire.NewHeaderTemplate(f)
	if err != nil {
		return nil, false
	}
	b := append(make([]byte, port.Headroom), payload...)
	return b[port.Headroom-head.Write(b, port.Headroom, &h):], true
}
