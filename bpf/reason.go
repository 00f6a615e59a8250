package bpf

import "fmt"

// Reason is the program's reason for its verdict on a packet, and the index into
// MapStats. The program counts exactly one reason for each packet.
type Reason uint32

// These are the reasons (enum stag_reason). docs/counters.md explains each.
const (
	Steered     Reason = iota // redirected to the engine with a steering record
	SteeredBare               // redirected without a record: no room in front of the packet
	NoSocket                  // dropped: the flow is known, but this queue has no socket
	TooLong                   // dropped: the flow is known, but the packet is longer than the flow's sockets take
	Orphaned                  // passed to the kernel, which resets the peer: the flow's engine has died

	ShortEthernet // the frame ends within its Ethernet header
	ShortVLAN     // the frame ends within its VLAN tag
	ShortIP4      // the frame ends within its IPv4 header
	ShortIP6      // the frame ends within its IPv6 header
	ShortTCP      // the frame ends within its TCP header
	ShortICMP     // the frame ends within its ICMP message, up to octet 8 of the quoted segment
	NotIP         // ARP, a second VLAN tag, 802.1ad and others
	BadIP         // impossible version or header length, or a packet of a flow that ends before its IP header says
	IPOptions     // IPv4 with options, IPv6 with an extension header
	Fragment      // an IPv4 or IPv6 fragment, including the first
	NotTCP        // neither TCP nor ICMP
	BadTCP        // impossible TCP header length
	NoFlow        // a TCP segment of a connection that was not taken over
	ICMPOther     // an ICMP message that is not "too big", or is not about a TCP segment
	ICMPNoFlow    // an ICMP "too big" about a segment of an unknown flow

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
