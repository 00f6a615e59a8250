package packet

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Sum selects the contents of the TCP checksum field.
type Sum int

const (
	SumRight   Sum = iota
	SumWrong       // a wrong checksum
	SumPartial     // only the sum of the pseudo-header, as with transmit checksum offload
	SumFFFF        // 0xffff instead of 0x0000; panics if the checksum is another one
)

// TS is a timestamps option.
type TS struct{ Val, Ecr uint32 }

// TCP describes a frame with a TCP segment.
type TCP struct {
	Link
	IP
	Seq, Ack uint32
	Flags    string // letters of "FSRPAUEC"; "" means "A"
	Window   uint16
	Urgent   uint16
	TS       *TS         // timestamps option, after two NOPs; nil: none
	SACK     [][2]uint32 // blocks of the SACK option, after two NOPs; empty: none
	Raw      []byte      // more octets of options; the length is a multiple of 4
	Payload  []byte
	Sum      Sum
}

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p TCP) Bytes() []byte {
	packet, kind := p.IP.bytes(layers.IPProtocolTCP, p.segment())
	return p.Link.bytes(kind, packet)
}

// segment returns the TCP header and the payload.
func (p TCP) segment() []byte {
	src, dst := p.addresses()
	h := &layers.TCP{
		SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()),
		Seq: p.Seq, Ack: p.Ack, Window: p.Window, Urgent: p.Urgent,
		Options: p.options(), Padding: p.Raw,
	}
	if len(p.Raw)%4 != 0 {
		panic("packet: raw options must be a multiple of 4 octets")
	}
	p.setFlags(h)
	network, _ := p.layer(layers.IPProtocolTCP)
	if err := h.SetNetworkLayerForChecksum(network); err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	b := serialize(h, gopacket.Payload(p.Payload))
	field := b[16:18]
	switch p.Sum {
	case SumWrong:
		field[0] ^= 0x55
	case SumPartial:
		binary.BigEndian.PutUint16(field, p.pseudo(len(b)))
	case SumFFFF:
		if field[0] != 0 || field[1] != 0 {
			panic(fmt.Sprintf("packet: the checksum is %#x, not 0", field))
		}
		field[0], field[1] = 0xff, 0xff
	}
	return b
}

// pseudo returns the folded sum of the pseudo-header without the final complement. It
// adds octet by octet.
func (p TCP) pseudo(length int) uint16 {
	src, dst := p.addresses()
	sum := uint32(6 + length)
	all := append(src.Addr().AsSlice(), dst.Addr().AsSlice()...)
	for i, octet := range all {
		sum += uint32(octet) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func (p TCP) setFlags(h *layers.TCP) {
	flags := p.Flags
	if flags == "" {
		flags = "A"
	}
	bits := map[rune]*bool{'F': &h.FIN, 'S': &h.SYN, 'R': &h.RST, 'P': &h.PSH,
		'A': &h.ACK, 'U': &h.URG, 'E': &h.ECE, 'C': &h.CWR}
	for _, r := range flags {
		bit, ok := bits[r]
		if !ok {
			panic(fmt.Sprintf("packet: no TCP flag %q", r))
		}
		*bit = true
	}
}

func (p TCP) options() (list []layers.TCPOption) {
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	if p.TS != nil {
		data := binary.BigEndian.AppendUint32(nil, p.TS.Val)
		data = binary.BigEndian.AppendUint32(data, p.TS.Ecr)
		list = append(list, nop, nop, layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionData: data})
	}
	if len(p.SACK) > 0 {
		var data []byte
		for _, block := range p.SACK {
			data = binary.BigEndian.AppendUint32(data, block[0])
			data = binary.BigEndian.AppendUint32(data, block[1])
		}
		list = append(list, nop, nop, layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionData: data})
	}
	return list
}
