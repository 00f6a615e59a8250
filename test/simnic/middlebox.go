package simnic

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// middlebox splits and merges data segments in flight, as segmentation and receive
// offloads do, and computes the new checksums. It holds at most one segment.
type middlebox struct {
	held  []byte // octets of the held segment, or empty; its capacity is the length of the longest segment that can arrive
	fate  fate   // fate of the last segment in held
	until clock.Instant
	cut   [2][]byte // the halves of a split segment
}

// mergeWait is how long a segment waits for the next one.
const mergeWait = 50 * time.Microsecond

func newMiddlebox(c *Config) middlebox {
	b := middlebox{until: clock.Never}
	if c.Merge > 0 {
		b.held = make([]byte, 0, c.maxArrival())
	}
	if c.Split > 0 {
		b.cut = [2][]byte{make([]byte, c.maxPacket()), make([]byte, c.maxPacket())}
	}
	return b
}

// pass puts a packet in flight, unless the middlebox holds the packet or merges it with
// the held segment. The middlebox may also split the packet.
func (d *direction) pass(f fate, packet []byte) {
	c, b := &d.link.cfg, &d.box
	if c.Merge == 0 && c.Split == 0 {
		d.fly(f, packet)
		return
	}
	if len(b.held) > 0 {
		if b.merge(packet) {
			d.stats.Merged++
			b.fate = f
			if d.more.Float64() >= c.Merge {
				d.letGo()
			}
			return
		}
		d.letGo()
	}
	var p wire.Packet
	switch {
	case !isData(packet, &p):
		d.fly(f, packet)
	case d.more.Float64() < c.Merge:
		b.held, b.fate, b.until = append(b.held[:0], packet...), f, d.link.now.Add(mergeWait)
	case p.End-p.Payload > 1 && d.more.Float64() < c.Split:
		d.split(f, packet, &p)
	default:
		d.fly(f, packet)
	}
}

// letGo puts the held segment in flight.
func (d *direction) letGo() {
	b := &d.box
	held := b.held
	b.held, b.until = held[:0], clock.Never
	d.fly(b.fate, held)
}

// isData parses the packet into p. It reports whether the packet is a valid data
// segment whose flags allow a split or a merge.
func isData(packet []byte, p *wire.Packet) bool {
	const plain = wire.ACK | wire.PSH | wire.FIN
	return wire.ParsePacket(packet, p) == wire.OK && !p.ICMP && p.Payload < p.End && p.End == len(packet) &&
		p.TCP.Flags&wire.ACK != 0 && p.TCP.Flags&^plain == 0 && p.VerifyChecksum(packet, false) == wire.OK
}

// merge appends the data of packet to the held segment. It returns false unless packet
// is the next segment and the headers differ only in sequence number and PSH.
func (b *middlebox) merge(packet []byte) bool {
	var p, q wire.Packet
	if !isData(packet, &q) || !isData(b.held, &p) || p.L4 != q.L4 || p.Payload != q.Payload {
		return false
	}
	data := packet[q.Payload:q.End]
	if len(b.held)+len(data) > cap(b.held) || p.TCP.Flags&wire.FIN != 0 ||
		p.TCP.Seq.Add(seq.Len(p.End-p.Payload)) != q.TCP.Seq || p.TCP.Ack != q.TCP.Ack || p.TCP.Window != q.TCP.Window ||
		p.TCP.SrcPort != q.TCP.SrcPort || p.TCP.DstPort != q.TCP.DstPort ||
		!slices.Equal(p.Src, q.Src) || !slices.Equal(p.Dst, q.Dst) ||
		!slices.Equal(b.held[p.L4+wire.TCPLen:p.Payload], packet[q.L4+wire.TCPLen:q.Payload]) {
		return false
	}
	b.held = append(b.held, data...)
	b.held[p.L4+tcpFlags] |= packet[q.L4+tcpFlags]
	seal(b.held, &p)
	return true
}

// split divides a segment into two. PSH and FIN stay with the second.
func (d *direction) split(f fate, packet []byte, p *wire.Packet) {
	at := p.Payload + 1 + d.more.IntN(p.End-p.Payload-1)
	first := append(d.box.cut[0][:0], packet[:at]...)
	first[p.L4+tcpFlags] &^= byte(wire.PSH | wire.FIN)
	seal(first, p)
	second := append(d.box.cut[1][:0], packet[:p.Payload]...)
	second = append(second, packet[at:p.End]...)
	binary.BigEndian.PutUint32(second[p.L4+tcpSeq:], uint32(p.TCP.Seq.Add(seq.Len(at-p.Payload))))
	seal(second, p)

	d.stats.Split++
	d.fly(f, first)
	d.fly(fate{}, second)
}

// These are offsets of the fields that change: RFC 9293 §3.1, RFC 791 §3.1, RFC 8200
// §3.
const (
	tcpSeq, tcpFlags, tcpChecksum = 4, 13, 16
	v4Length, v4Checksum          = 2, 10
	v6Length                      = 4
	protocolTCP                   = 6
)

// seal writes the lengths and checksums of a packet whose length has changed. p has the offsets of its headers and
// its addresses.
func seal(packet []byte, p *wire.Packet) {
	put := binary.BigEndian.PutUint16
	ip, segment := packet[p.L3:p.L4], packet[p.L4:]
	if p.Family == wire.V4 {
		put(ip[v4Length:], uint16(len(ip)+len(segment)))
		put(ip[v4Checksum:], 0)
		put(ip[v4Checksum:], wire.Sum(0).Add(ip).Checksum())
	} else {
		put(ip[v6Length:], uint16(len(segment)))
	}
	put(segment[tcpChecksum:], 0)
	pseudo := wire.Sum(protocolTCP).Add(p.Src).Add(p.Dst) + wire.Sum(len(segment))
	put(segment[tcpChecksum:], pseudo.Add(segment).Checksum())
}

// markCE sets both ECN bits of a valid packet that has one of them. It returns false if the packet has none.
func markCE(packet []byte) bool {
	var p wire.Packet
	if wire.ParsePacket(packet, &p) != wire.OK || p.VerifyChecksum(packet, false) != wire.OK {
		return false
	}
	ip := packet[p.L3:p.L4]
	tos, shift := &ip[1], 0 // the low two bits of octet 1; in IPv6 they are in its upper half
	if p.Family == wire.V6 {
		shift = 4
	}
	if *tos>>shift&3 == 0 {
		return false
	}
	*tos |= 3 << shift
	if p.Family == wire.V4 {
		binary.BigEndian.PutUint16(ip[v4Checksum:], 0)
		binary.BigEndian.PutUint16(ip[v4Checksum:], wire.Sum(0).Add(ip).Checksum())
	}
	return true
}

// forge swaps two different words of the packet's data. The checksum stays correct,
// because it is a sum. forge returns false if there are no such words.
func forge(packet []byte, r *rand.Rand) bool {
	var p wire.Packet
	if !isData(packet, &p) || p.End-p.Payload < 4 {
		return false
	}
	words := (p.End - p.Payload) / 2
	i, j := r.IntN(words), r.IntN(words)
	a, b := packet[p.Payload+2*i:][:2], packet[p.Payload+2*j:][:2]
	if a[0] == b[0] && a[1] == b[1] {
		return false
	}
	a[0], a[1], b[0], b[1] = b[0], b[1], a[0], a[1]
	return true
}
