package rendezvous

import "encoding/binary"

// The private data of a Request and of a Reply:
//
//	0      4         5      6          8          12         16
//	| magic | version | kind | reserved | own QPN  | peer QPN |
//
// The numbers are in network byte order.
const (
	magic   = "SQPN"
	version = 1

	versionAt  = 4
	kindAt     = 5
	ownAt      = 8
	peerAt     = 12
	messageLen = 16
)

// kind says what a message means.
type kind uint8

const (
	asks     kind = iota // Request: connect these QPs
	accepts              // Reply: they are connected
	notYet               // Reply: nobody has asked for that connection here; try again
	mistaken             // Reply: the QP here has been told to connect to another QP
)

// message is the private data of a Request or Reply.
type message struct {
	kind      kind
	own, peer uint32 // numbers of the sender's QP and of the receiver's
}

func (m message) encode() []byte {
	b := append([]byte(magic), version, byte(m.kind), 0, 0)
	b = binary.BigEndian.AppendUint32(b, m.own)
	return binary.BigEndian.AppendUint32(b, m.peer)
}

// parse reads private data. ok is false if it is not that of an Exchange.
func parse(b []byte) (m message, ok bool) {
	if len(b) != messageLen || string(b[:versionAt]) != magic || b[versionAt] != version {
		return message{}, false
	}
	return message{kind(b[kindAt]), binary.BigEndian.Uint32(b[ownAt:]), binary.BigEndian.Uint32(b[peerAt:])}, true
}
