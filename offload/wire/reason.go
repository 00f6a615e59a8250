package wire

// Reason says why a frame is not for an engine. Zero is "it is".
type Reason uint8

const (
	OK              Reason = iota
	Short                  // the frame ends within a header
	NotIP                  // another EtherType, or a second VLAN tag
	BadVersion             // the IP version contradicts the EtherType
	BadLength              // the IP lengths contradict each other or the frame
	IPOptions              // IPv4 with options
	Extension              // IPv6 with an extension header
	Fragment               // a fragment of either version
	OtherProtocol          // neither TCP nor ICMP
	OtherICMP              // ICMP other than "too big"
	BadQuote               // "too big" that quotes no TCP segment
	BadTCPHeader           // TCP data offset below 5 or beyond the segment
	BadIPChecksum          // IPv4 header checksum
	BadTCPChecksum         // TCP checksum
	BadICMPChecksum        // ICMP checksum
	PartialChecksum        // TCP checksum field holds only the pseudo-header's sum

	NumReasons // how many there are: the length of a counter array
)

var reasonNames = [NumReasons]string{
	OK:              "ok",
	Short:           "short",
	NotIP:           "not IP",
	BadVersion:      "wrong IP version",
	BadLength:       "bad IP length",
	IPOptions:       "IP options",
	Extension:       "IPv6 extension header",
	Fragment:        "fragment",
	OtherProtocol:   "neither TCP nor ICMP",
	OtherICMP:       "other ICMP",
	BadQuote:        "bad ICMP quote",
	BadTCPHeader:    "bad TCP header length",
	BadIPChecksum:   "bad IP checksum",
	BadTCPChecksum:  "bad TCP checksum",
	BadICMPChecksum: "bad ICMP checksum",
	PartialChecksum: "partial TCP checksum",
}

func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown reason"
}
