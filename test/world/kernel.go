package world

import (
	"net/netip"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// kernel is a port that steers as the XDP program does. Only segments of open flows
// reach the engine. The port answers all other segments with a reset, as the kernel
// answers segments of an unknown connection (RFC 9293 §3.10.7.1).
type kernel struct {
	port.Port
	open   map[bpf.FlowKey]bool
	arrive func(packet []byte) // Config.Arrive for this side, or nil
	pkt    wire.Packet
	one    [1]port.Frame
}

// Receive implements port.Port.
func (k *kernel) Receive(dst []port.Frame) int {
	n := k.Port.Receive(dst)
	kept := dst[:0]
	for _, f := range dst[:n] {
		if k.arrive != nil {
			k.arrive(k.Bytes(f))
		}
		if k.steered(f) {
			kept = append(kept, f)
			continue
		}
		k.reset()
		k.one[0] = f
		k.Recycle(k.one[:])
	}
	return len(kept)
}

// steered parses f into pkt and reports whether f is for the engine. A frame that
// cannot be parsed is also for the engine, which counts it.
func (k *kernel) steered(f port.Frame) bool {
	b := k.Bytes(f)
	p := &k.pkt
	if wire.ParsePacket(b, p) != wire.OK || p.ICMP || p.VerifyChecksum(b, false) != wire.OK {
		return true
	}
	key, err := bpf.NewFlowKey(k.addr(p.Src, p.TCP.SrcPort), k.addr(p.Dst, p.TCP.DstPort), 0)
	return err == nil && k.open[key]
}

func (k *kernel) addr(ip []byte, number uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, number)
}

// reset answers the segment in pkt with a RST. It does not answer a RST. If there is no
// free frame or no room, it sends nothing, and the peer repeats its segment.
func (k *kernel) reset() {
	p := &k.pkt
	if p.TCP.Flags&wire.RST != 0 || k.Take(k.one[:]) == 0 {
		return
	}
	f := k.one[0]
	head, err := wire.NewHeaderTemplate(wire.HeaderFields{
		DstMAC: wire.MAC{2, 1}, SrcMAC: wire.MAC{2, 2}, TTL: 64,
		Src: k.addr(p.Dst, p.TCP.DstPort), Dst: k.addr(p.Src, p.TCP.SrcPort),
	})
	if err == nil {
		mem := k.Bytes(port.Frame{Addr: f.Addr - port.Headroom, Len: port.Headroom})
		n := uint32(head.Write(mem, port.Headroom, &wire.TCPFields{Seq: p.TCP.Ack, Flags: wire.RST}))
		k.one[0] = port.Frame{Addr: f.Addr - uint64(n), Len: n}
		k.Send(k.one[:])
	}
	k.one[0] = f
	k.Free(k.one[:])
}
