package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// HeaderFields holds the header fields that all segments of a flow share.
type HeaderFields struct {
	DstMAC, SrcMAC MAC
	VLAN           uint16 // id of the VLAN; 0 means untagged
	Priority       uint8  // priority of the VLAN tag, 0 to 7

	// Src is the local side. Both addresses must be of one family. NewHeaderTemplate
	// refuses an IPv4 address mapped into IPv6.
	Src, Dst netip.AddrPort

	TTL       uint8  // TTL, in IPv6 the hop limit; not 0
	TOS       uint8  // TOS octet, in IPv6 the traffic class; the ECN bits must be 0
	FlowLabel uint32 // flow label of IPv6, 20 bits
	ID        uint16 // identification of the first IPv4 packet
}

// check returns one error with every fault of h.
func (h HeaderFields) check() error {
	var bad []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	src, dst := h.Src.Addr(), h.Dst.Addr()
	complain(!src.IsValid() || !dst.IsValid(), "source %v or destination %v is not set", src, dst)
	complain(src.Is4() != dst.Is4(), "source %v and destination %v are of different families", src, dst)
	complain(src.Is4In6() || dst.Is4In6(), "unmap the IPv4 addresses %v and %v first", src, dst)
	complain(h.Src.Port() == 0 || h.Dst.Port() == 0, "port 0 in %v or %v", h.Src, h.Dst)
	complain(h.VLAN > MaxVLAN, "VLAN id %d is above %d", h.VLAN, MaxVLAN)
	complain(h.Priority > 7, "VLAN priority %d is above 7", h.Priority)
	complain(h.TTL == 0, "TTL is 0")
	complain(h.TOS&ecnMask != 0, "TOS %#x has ECN bits, which belong to each packet", h.TOS)
	complain(h.FlowLabel > MaxFlowLabel, "flow label %#x is longer than 20 bits", h.FlowLabel)
	complain(h.FlowLabel != 0 && src.Is4(), "IPv4 has no flow label")
	return errors.Join(bad...)
}

// HeaderTemplate holds the constant parts of the headers of a flow's segments, and the
// sums over them. Only the owner of the flow may use it.
//
// IPv4 packets have "don't fragment" set and an identification that counts up per flow.
// RFC 6864 §4.1 allows any identification if "don't fragment" is set. But some networks
// clear the flag and fragment the packets. With a constant identification, a receiver
// could then combine fragments of different packets.
type HeaderTemplate struct {
	head     [EthernetLen + VLANLen + IPv6Len]byte // Ethernet header, VLAN tag and IP header
	l3, l4   uint8                                 // offsets of the IP header and of the TCP header
	v6       bool
	id       uint16
	src, dst uint16 // ports of this end and of the peer
	ipSum    Sum    // sum of the IPv4 header without length, id and checksum
	tcpSum   Sum    // sum of the pseudo-header without the length
}

// NewHeaderTemplate builds the template of a flow. The error names every fault of h.
func NewHeaderTemplate(h HeaderFields) (HeaderTemplate, error) {
	if err := h.check(); err != nil {
		return HeaderTemplate{}, fmt.Errorf("headers of flow %v to %v: %w", h.Src, h.Dst, err)
	}
	t := HeaderTemplate{v6: h.Src.Addr().Is6(), id: h.ID, src: h.Src.Port(), dst: h.Dst.Port()}
	b := h.appendLink(t.head[:0])
	t.l3 = uint8(len(b))
	src, dst := h.Src.Addr(), h.Dst.Addr()
	if t.v6 {
		b = IPv6Fields{TrafficClass: h.TOS, FlowLabel: h.FlowLabel, Protocol: protoTCP,
			HopLimit: h.TTL, Src: src.As16(), Dst: dst.As16()}.Append(b)
	} else {
		b = IPv4Fields{TOS: h.TOS, DontFragment: true, TTL: h.TTL, Protocol: protoTCP,
			Src: src.As4(), Dst: dst.As4()}.Append(b)
		clear(b[t.l3+v4Checksum:][:2])
		t.ipSum = Sum(0).Add(b[t.l3:])
	}
	t.l4 = uint8(len(b))
	t.tcpSum = pseudo(src.AsSlice(), dst.AsSlice(), protoTCP)
	return t, nil
}

// appendLink appends the Ethernet header and the VLAN tag to b.
func (h HeaderFields) appendLink(b []byte) []byte {
	next := TypeIPv4
	if h.Src.Addr().Is6() {
		next = TypeIPv6
	}
	if h.VLAN == 0 {
		return EthernetFields{Dst: h.DstMAC, Src: h.SrcMAC, Type: next}.Append(b)
	}
	b = EthernetFields{Dst: h.DstMAC, Src: h.SrcMAC, Type: TypeVLAN}.Append(b)
	return VLANFields{ID: h.VLAN, Priority: h.Priority, Type: next}.Append(b)
}

// SetDstMAC sets the destination address of the frames, for a next hop whose Ethernet
// address has changed.
func (t *HeaderTemplate) SetDstMAC(m MAC) { copy(t.head[ethDst:], m[:]) }

// SetSrcMAC sets the source address of the frames, for an interface whose own Ethernet
// address has changed.
func (t *HeaderTemplate) SetSrcMAC(m MAC) { copy(t.head[ethSrc:], m[:]) }

// SrcMAC returns the source address of the frames.
func (t *HeaderTemplate) SrcMAC() MAC { return MAC(t.head[ethSrc:]) }

// DstMAC returns the destination address of the frames.
func (t *HeaderTemplate) DstMAC() MAC { return MAC(t.head[ethDst:]) }

// Len returns the length in octets of the headers that Write writes for f.
func (t *HeaderTemplate) Len(f *TCPFields) int { return int(t.l4) + f.HeaderLen() }

// Write writes the headers of one segment directly in front of its payload, with
// checksums. Write returns the length of the headers in octets. The payload is b[at:],
// and the frame is b[at-n:]. at must be at least Len(f). port.Headroom is always large
// enough. Write uses the ports of the flow, not those in f.
//
// Write overwrites the octets in front of the payload. If those octets of the chunk are
// still needed, the caller must move the payload first.
func (t *HeaderTemplate) Write(b []byte, at int, f *TCPFields) (n int) {
	n, segment := t.write(b, at, f)
	sum := t.tcpSum + Sum(len(segment))
	binary.BigEndian.PutUint16(segment[tcpChecksum:], sum.Add(segment).Checksum())
	return n
}

// WritePartial is Write for a device that completes the TCP checksum: the checksum field
// holds only the sum of the pseudo-header. l4 is the offset of the TCP header in the frame,
// where the device begins to sum.
func (t *HeaderTemplate) WritePartial(b []byte, at int, f *TCPFields) (n, l4 int) {
	n, segment := t.write(b, at, f)
	binary.BigEndian.PutUint16(segment[tcpChecksum:], (t.tcpSum + Sum(len(segment))).Fold())
	return n, int(t.l4)
}

// write writes the headers with 0 in the checksum field. segment is the TCP header with the
// payload.
func (t *HeaderTemplate) write(b []byte, at int, f *TCPFields) (n int, segment []byte) {
	n = t.Len(f)
	frame := b[at-n:]
	segment = frame[t.l4:]
	copy(frame, t.head[:t.l4])
	t.writeIP(frame[t.l3:], len(segment), f.ECT)

	own := *f
	own.SrcPort, own.DstPort = t.src, t.dst
	own.Append(segment[:0])
	return n, segment
}

// Complete writes the TCP checksum of a frame that WritePartial has made, as a device does.
func Complete(frame []byte, l4 int) {
	sum := Sum(0).Add(frame[l4:]).Checksum()
	binary.BigEndian.PutUint16(frame[l4+tcpChecksum:], sum)
}

// writeIP writes the fields of the IP header at b that differ from packet to packet. n
// is the length of the segment behind the header in octets. Both versions of IP have
// the ECN bits in the first word.
func (t *HeaderTemplate) writeIP(b []byte, n int, ect bool) {
	if n > 0xffff-IPv4Len {
		panic("wire: segment longer than an IP packet")
	}
	if t.v6 {
		if ect {
			b[v6ClassLow] |= ecnECT0 << 4
		}
		binary.BigEndian.PutUint16(b[v6Length:], uint16(n))
		return
	}
	sum := t.ipSum
	if ect {
		b[v4TOS] |= ecnECT0
		sum = sum.Add16(ecnECT0)
	}
	length := uint16(n + IPv4Len)
	binary.BigEndian.PutUint16(b[v4Length:], length)
	binary.BigEndian.PutUint16(b[v4ID:], t.id)
	binary.BigEndian.PutUint16(b[v4Checksum:], sum.Add16(length).Add16(t.id).Checksum())
	t.id++
}
