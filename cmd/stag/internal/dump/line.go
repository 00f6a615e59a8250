package dump

import (
	"net/netip"
	"strings"
	"time"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/wire"
)

// Line is a parsed packet, with everything that is printed.
type Line struct {
	Time      time.Time     `json:"time"`
	PID       int           `json:"pid"`
	Adapter   int           `json:"adapter"` // number of the adapter in the process
	Device    string        `json:"device"`
	Queue     uint16        `json:"queue"`
	Direction string        `json:"direction"`      // "in" or "out"
	Flow      report.FlowID `json:"flow,omitempty"` // flow id; 0: the packet belongs to no connection
	QP        uint32        `json:"qp"`             // QP number; 0: not known
	Length    int           `json:"length"`         // length of the frame in octets
	Kind      Kind          `json:"kind"`

	Moved       []string   `json:"moved,omitempty"` // moves of the connection since its previous packet
	VLAN        uint16     `json:"vlan,omitempty"`
	Source      string     `json:"source,omitempty"` // address and port; for ICMP only the address
	Destination string     `json:"destination,omitempty"`
	TCP         *TCP       `json:"tcp,omitempty"`
	RDMA        *Operation `json:"rdma,omitempty"`
	ISCSI       []PDU      `json:"iscsi,omitempty"` // PDUs that begin in the captured octets
	TooBig      *TooBig    `json:"too_big,omitempty"`
	Problem     string     `json:"problem,omitempty"` // the reason why the packet could not be parsed; "" if it was parsed

	v6 bool
}

// TCP is a segment's header.
type TCP struct {
	Flags  string      `json:"flags"` // flags in the notation of tcpdump
	Seq    uint32      `json:"seq"`
	Ack    *uint32     `json:"ack,omitempty"`
	Window uint16      `json:"window"` // window field of the header, not scaled
	TSVal  *uint32     `json:"ts_val,omitempty"`
	TSEcr  *uint32     `json:"ts_ecr,omitempty"`
	SACK   [][2]uint32 `json:"sack,omitempty"` // left and right edge of each block
	Length int         `json:"length"`         // length of the payload in octets
}

// TooBig is a router's message about a segment that stag sent.
type TooBig struct {
	MTU         uint32 `json:"mtu"` // MTU that the router reports, in octets; 0: not reported
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Seq         uint32 `json:"seq"`
}

// reader parses packets. Only one goroutine uses a reader.
type reader struct {
	frame []byte
	pkt   wire.Packet
}

// HeadLen is how many octets of a packet are parsed: all headers, from Ethernet to the
// Read Request, and some more.
const HeadLen = 256

// read parses p, as far as it was captured. iscsi: the connection of p is one of iSCSI.
func (r *reader) read(p report.Packet, iscsi bool) Line {
	l := Line{
		Time: p.At, Device: p.Device, Queue: p.Queue, Direction: "in",
		Flow: report.FlowID(p.Flow), QP: p.QP, Length: p.Length, Kind: Other,
	}
	if p.Out {
		l.Direction = "out"
	}
	// The parsers need a packet of the full length. Therefore zeros replace the octets
	// that were cut off.
	r.frame = append(append(r.frame[:0], p.Data...), make([]byte, max(0, p.Length-len(p.Data)))...)
	if why := wire.ParsePacket(r.frame, &r.pkt); why != wire.OK {
		l.Problem = why.String()
		return l
	}
	l.VLAN, l.v6 = r.pkt.VLAN, r.pkt.Family == wire.V6
	if r.pkt.ICMP {
		r.readTooBig(&l)
		return l
	}
	r.readTCP(&l, len(p.Data), iscsi)
	return l
}

func (r *reader) readTooBig(l *Line) {
	t := &r.pkt.TooBig
	l.Kind, l.Source, l.Destination = ICMP, address(r.pkt.Src).String(), address(r.pkt.Dst).String()
	l.TooBig = &TooBig{MTU: t.MTU, Source: end(t.Src, t.SrcPort), Destination: end(t.Dst, t.DstPort), Seq: uint32(t.Seq)}
}

// readTCP parses a segment of which the first octets were captured.
func (r *reader) readTCP(l *Line, captured int, iscsi bool) {
	p, h := &r.pkt, &r.pkt.TCP
	l.Source, l.Destination = end(p.Src, h.SrcPort), end(p.Dst, h.DstPort)
	l.TCP = &TCP{Flags: flags(h.Flags), Seq: uint32(h.Seq), Window: h.Window, Length: p.End - p.Payload}
	if h.Flags&wire.ACK != 0 {
		ack := uint32(h.Ack)
		l.TCP.Ack = &ack
	}
	if h.HasTS {
		val, ecr := h.TSVal, h.TSEcr
		l.TCP.TSVal, l.TCP.TSEcr = &val, &ecr
	}
	for _, b := range h.SACK[:h.NSACK] {
		l.TCP.SACK = append(l.TCP.SACK, [2]uint32{uint32(b.Left), uint32(b.Right)})
	}
	if l.Kind = Ack; p.Payload == p.End {
		return
	}
	l.Kind = Data
	there := min(captured, p.End)
	switch {
	case there <= p.Payload:
	case iscsi:
		if all, kind := parsePDUs(r.frame[p.Payload:there]); len(all) != 0 {
			l.Kind, l.ISCSI = kind, all
		}
	default:
		if op, kind, ok := parseOperation(r.frame[p.Payload:there]); ok {
			l.Kind, l.RDMA = kind, op
		}
	}
}

// letters has the letters of tcpdump for the flags, in the order of tcpdump.
var letters = []struct {
	flag   wire.TCPFlags
	letter string
}{
	{wire.FIN, "F"}, {wire.SYN, "S"}, {wire.RST, "R"}, {wire.PSH, "P"}, {wire.ACK, "."}, {wire.URG, "U"}, {wire.ECE, "E"}, {wire.CWR, "W"},
}

func flags(f wire.TCPFlags) string {
	var b strings.Builder
	for _, l := range letters {
		if f&l.flag != 0 {
			b.WriteString(l.letter)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

func address(octets []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(octets) // the slice has 4 or 16 octets
	return a
}

func end(octets []byte, port uint16) string {
	return netip.AddrPortFrom(address(octets), port).String()
}
