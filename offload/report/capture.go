package report

import "time"

// Filter says which packets a capture has. The zero Filter selects all.
type Filter struct {
	Device  string // "": all
	Flow    uint32 // Flow.ID; 0: all
	QP      uint32 // QP.Number, which must be connected; 0: all
	SnapLen int    // octets of each packet that are kept; 0: all of it
}

// MaxLength is the most octets that a Packet can have had: an IP packet behind an
// Ethernet header with a VLAN tag.
const MaxLength = 64<<10 + 18

// Packet is one packet that an engine received or sent.
type Packet struct {
	At     time.Time // when the engine took it from the interface, or had it ready to be sent
	Device string
	Queue  uint16 // whose engine saw it
	Out    bool   // sent; otherwise received
	Flow   uint32 // Flow.ID; 0 when the packet belongs to none
	QP     uint32 // QP.Number of the flow; 0 when it has none
	Length int    // octets on the wire, Ethernet header included, without the checksum behind it; at most MaxLength
	Data   []byte // the first of them
}

// Batch has the packets that a capture has found since the previous Batch. The receiver
// owns it.
type Batch struct {
	Packets []Packet
	Streams []Stream // those of which the capture has the first packets here
	Lost    uint64   // packets that were lost since the capture began, because they were not taken in time
}

// Stream is what the two ends of a connection had agreed on before the engine took it
// over. The kernel sent and received their MPA Request and Reply, so that no capture
// has these packets.
type Stream struct {
	Device   string
	Flow, QP uint32 // as in Packet

	Initiator                bool // this end sent the Request
	Revision                 int  // of MPA
	CRC                      bool // FPDUs have one
	SendMarkers, RecvMarkers bool // what this end sends, and receives, has Markers
}
