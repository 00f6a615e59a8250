package wire

// Reason is the reason for which an engine cannot use a frame. The zero Reason is OK:
// the engine can use the frame.
type Reason uint8

const (
	OK              Reason = iota
	Short                  // the frame ends within a header
	NotIP                  // an EtherType other than IP, or a second VLAN tag
	BadVersion             // the IP version does not match the EtherType
	BadLength              // the IP lengths do not match each other or the frame
	IPOptions              // an IPv4 header with options
	Extension              // an IPv6 packet with an extension header
	Fragment               // a fragment of IPv4 or IPv6
	OtherProtocol          // a protocol other than TCP and ICMP
	OtherICMP              // an ICMP message other than "too big"
	BadQuote               // a "too big" message that quotes no TCP segment
	BadTCPHeader           // a TCP data offset below 5 or beyond the segment
	BadIPChecksum          // a wrong checksum of the IPv4 header
	BadTCPChecksum         // a wrong TCP checksum
	BadICMPChecksum        // a wrong ICMP checksum
	PartialChecksum        // a TCP checksum field with only the sum of the pseudo-header

	NumReasons // number of Reasons, for the length of counter arrays
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

// String returns the reason's name as counters show it, in lower case with underscores.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown_reason"
}
