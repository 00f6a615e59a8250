package bpf

import "fmt"

// Reason is the program's reason for its verdict on a packet, and the index into
// MapStats. The program counts exactly one reason for each packet.
type Reason uint32

// Reasons (enum stag_reason).
const (
	Steered     Reason = iota // with its record
	SteeredBare               // no room in front of the packet for the record
	NoSocket                  // flow known, no socket at this queue: dropped
	TooLong                   // flow known, longer than its sockets take: dropped
	Orphaned                  // flow given up, as its engine is gone: passed to the kernel, which resets the peer

	ShortEthernet // the frame ends within its Ethernet header
	ShortVLAN     // the frame ends within its VLAN tag
	ShortIP4      // the frame ends within its IPv4 header
	ShortIP6      // the frame ends within its IPv6 header
	ShortTCP      // the frame ends within its TCP header
	ShortICMP     // the frame ends within its ICMP message, the first 8 octets of the quoted segment included
	NotIP         // ARP, a second VLAN tag, 802.1ad and others
	BadIP         // version, header length or total length cannot be
	IPOptions     // IPv4 with options, IPv6 with an extension header
	Fragment      // a fragment of either version, the first one included
	NotTCP        // neither TCP nor ICMP
	BadTCP        // header length cannot be
	NoFlow        // TCP, of a connection that was not taken over
	ICMPOther     // not "too big", or not about a TCP segment
	ICMPNoFlow    // "too big" about a segment that is not ours

	Reasons // the number of reasons
)

var reasonNames = [Reasons]string{
	Steered:       "steered",
	SteeredBare:   "steered_bare",
	NoSocket:      "no_socket",
	TooLong:       "too_long",
	Orphaned:      "orphaned",
	ShortEthernet: "short_ethernet",
	ShortVLAN:     "short_vlan",
	ShortIP4:      "short_ip4",
	ShortIP6:      "short_ip6",
	ShortTCP:      "short_tcp",
	ShortICMP:     "short_icmp",
	NotIP:         "not_ip",
	BadIP:         "bad_ip",
	IPOptions:     "ip_options",
	Fragment:      "fragment",
	NotTCP:        "not_tcp",
	BadTCP:        "bad_tcp",
	NoFlow:        "no_flow",
	ICMPOther:     "icmp_other",
	ICMPNoFlow:    "icmp_no_flow",
}

// String returns the reason's name as counters show it: lower case, underscores.
func (r Reason) String() string {
	if r < Reasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint32(r))
}
