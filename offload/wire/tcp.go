package wire

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/seq"
)

// A TCP header (RFC 9293 §3.1):
//
//	0     2     4     8     12       13      14       16         18       20
//	| src | dst | seq | ack | offset | flags | window | checksum | urgent | options
const (
	tcpSrc      = 0
	tcpDst      = 2
	tcpSeq      = 4
	tcpAck      = 8
	tcpOffset   = 12
	tcpFlags    = 13
	tcpWindow   = 14
	tcpChecksum = 16
	tcpUrgent   = 18
	TCPLen      = 20 // length in octets without options
)

// TCP is a view of a TCP header with its options.
type TCP struct{ b []byte }

// ParseTCP splits a segment into its header and its payload. ParseTCP does not check
// the checksum.
func ParseTCP(b []byte) (h TCP, payload []byte, why Reason) {
	if len(b) < TCPLen {
		return TCP{}, nil, Short
	}
	n := int(b[tcpOffset]>>4) * 4
	if n < TCPLen || n > len(b) {
		return TCP{}, nil, BadTCPHeader
	}
	return TCP{b[:n:n]}, b[n:], OK
}

func (h TCP) SrcPort() uint16  { return binary.BigEndian.Uint16(h.b[tcpSrc:]) }
func (h TCP) DstPort() uint16  { return binary.BigEndian.Uint16(h.b[tcpDst:]) }
func (h TCP) Seq() seq.Num     { return seq.Num(binary.BigEndian.Uint32(h.b[tcpSeq:])) }
func (h TCP) Ack() seq.Num     { return seq.Num(binary.BigEndian.Uint32(h.b[tcpAck:])) }
func (h TCP) Flags() TCPFlags  { return TCPFlags(h.b[tcpFlags]) }
func (h TCP) Window() uint16   { return binary.BigEndian.Uint16(h.b[tcpWindow:]) }
func (h TCP) Checksum() uint16 { return binary.BigEndian.Uint16(h.b[tcpChecksum:]) }
func (h TCP) Urgent() uint16   { return binary.BigEndian.Uint16(h.b[tcpUrgent:]) }
func (h TCP) Options() []byte  { return h.b[TCPLen:] }
func (h TCP) Len() int         { return len(h.b) } // length of the header in octets, options included

// Fields reads the header into f. Fields returns false if the options are malformed. f
// then contains the options before the malformed one. Fields ignores the options behind
// it, as the kernel does (RFC 9293 §3.1 leaves this choice to the receiver).
func (h TCP) Fields(f *TCPFields) (sound bool) {
	f.SrcPort, f.DstPort = h.SrcPort(), h.DstPort()
	f.Seq, f.Ack = h.Seq(), h.Ack()
	f.Flags, f.Window = h.Flags(), h.Window()
	f.HasTS, f.TSVal, f.TSEcr = false, 0, 0
	f.NSACK = 0 // NSACK says how many entries of SACK are valid
	f.ECT = false
	return f.parseOptions(h.Options())
}

// Append appends the header to b with a checksum of zero. Append writes as many SACK
// blocks as fit, from the first on. HeaderLen returns the header's length. The urgent
// pointer is zero, because stag sends no urgent data.
func (f *TCPFields) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, f.SrcPort)
	b = binary.BigEndian.AppendUint16(b, f.DstPort)
	b = binary.BigEndian.AppendUint32(b, uint32(f.Seq))
	b = binary.BigEndian.AppendUint32(b, uint32(f.Ack))
	b = append(b, uint8(f.HeaderLen()/4)<<4, uint8(f.Flags))
	b = binary.BigEndian.AppendUint16(b, f.Window)
	b = append(b, 0, 0, 0, 0) // checksum and urgent pointer
	return f.appendOptions(b)
}

// HeaderLen returns how many octets Append writes, a multiple of 4.
func (f *TCPFields) HeaderLen() int {
	n := TCPLen
	if f.HasTS {
		n += optTSPadded
	}
	if s := f.sackFit(); s > 0 {
		n += optSACKPadded + s*optSACKBlock
	}
	return n
}
