package report

import "time"

// Filter says which packets a capture contains. The zero Filter selects all packets.
type Filter struct {
	Device  string // name of the device; "": all
	Flow    uint32 // ID of the flow; 0: all
	QP      uint32 // number of the QP, which must be connected; 0: all
	SnapLen int    // octets of each packet that are kept; 0: all
}

// MaxLength is the largest Length of a Packet: an IP packet behind an Ethernet header
// with a VLAN tag.
const MaxLength = 64<<10 + 18

// Packet is one packet that an engine received or sent.
type Packet struct {
	At     time.Time // time when the engine took the packet from the interface, or had it ready to be sent
	Device string
	Queue  uint16 // queue of the engine that handled the packet
	Out    bool   // the packet was sent; otherwise it was received
	Flow   uint32 // ID of the flow; 0 if the packet belongs to no flow
	QP     uint32 // number of the flow's QP; 0 if the flow has no QP
	Length int    // octets on the wire with the Ethernet header, without the frame check sequence; at most MaxLength
	Data   []byte // the first octets of the packet
}

// Batch contains the packets that a capture has found since the previous Batch. The
// receiver owns the Batch.
type Batch struct {
	Packets []Packet
	Streams []Stream // the connections whose first captured packets are in this Batch
	Moves   []Move   // connections that have moved between ports
	Lost    uint64   // packets lost since the capture began, because the reader was too slow
}

// Move says that a connection has moved from one port of the adapter to another. The
// packets of the connection may be in the same Batch, in an earlier or in a later one.
type Move struct {
	At       time.Time // time when the connection left its port
	Flow     uint32    // number of the flow, as in Packet
	From, To string    // names of the devices
	Cause    string    // asked, route, carrier, lost, drain or failed
	Frozen   uint64    // microseconds for which no engine ran the connection
}

// ISCSI is the Kind of a stream of iSCSI, as in Flow.Kind.
const ISCSI = "iscsi"

// Stream is what the two ends of a connection agreed on before the engine took the
// connection over. The kernel sent and received the MPA Request and Reply, or the login
// of iSCSI, so that no capture contains these packets.
type Stream struct {
	Device   string
	Flow, QP uint32 // numbers of the flow and of its QP, as in Packet
	Kind     string // ISCSI, or "" for RDMA; a stream of iSCSI has only this field and those above

	Initiator                bool // this end sent the Request
	Revision                 int  // revision of MPA
	CRC                      bool // FPDUs have a CRC
	SendMarkers, RecvMarkers bool // the octets that this end sends, or receives, contain Markers
}
