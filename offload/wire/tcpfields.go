package wire

import "github.com/stag-rdma/stag/offload/seq"

// TCPFlags are the control bits of octet 13 of the TCP header (RFC 9293 §3.1).
type TCPFlags uint8

const (
	FIN TCPFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// SACKBlock is one block of a SACK option (RFC 2018 §3). A SACKBlock covers the octets
// from Left up to, but not including, Right.
type SACKBlock struct{ Left, Right seq.Num }

// MaxSACK is how many blocks fit into one option field without timestamps.
const MaxSACK = 4

// TCPFields is a TCP header in host form. TCPFields is either parsed from a segment or
// passed to Append. TCPFields has the options that appear outside SYN segments.
type TCPFields struct {
	SrcPort, DstPort uint16
	Seq, Ack         seq.Num
	Flags            TCPFlags
	Window           uint16 // window as on the wire, not scaled

	HasTS        bool // the header has the timestamps option (RFC 7323 §3)
	TSVal, TSEcr uint32
	SACK         [MaxSACK]SACKBlock
	NSACK        uint8 // number of valid entries of SACK

	// ECT makes HeaderTemplate write ECT(0) into the IP header, so that routers may
	// mark the packet (RFC 3168 §5). A parsed header never has ECT set.
	ECT bool
}
