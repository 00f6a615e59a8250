package wire

// Reason is the reason for which an engine cannot use a frame. OK, zero, means that it
// can.
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
	NotIP:           "not_ip",
	BadVersion:      "bad_version",
	BadLength:       "bad_length",
	IPOptions:       "ip_options",
	Extension:       "extension",
	Fragment:        "fragment",
	OtherProtocol:   "other_protocol",
	OtherICMP:       "other_icmp",
	BadQuote:        "bad_quote",
	BadTCPHeader:    "bad_tcp_header",
	BadIPChecksum:   "bad_ip_checksum",
	BadTCPChecksum:  "bad_tcp_checksum",
	BadICMPChecksum: "bad_icmp_checksum",
	PartialChecksum: "partial_checksum",
}

// String returns the reason's name as counters show it: lower case, underscores.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown_reason"
}
