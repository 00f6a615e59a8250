package nic

import (
	"fmt"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
)

// Partial says whether a segment is accepted whose TCP checksum field holds only the
// sum of the pseudo-header. The sender's kernel left the rest to a device, and no
// device has computed it. A kernel sends such segments over veth unless its transmit
// checksum offload is off.
type Partial uint8

const (
	// PartialOnVeth accepts such segments on a veth and refuses them on every other
	// interface.
	//
	// A veth hands over a sender's memory. No wire and no device lies between the two
	// ends, so that nothing can have changed the octets. Linux itself takes such a
	// packet for verified (CHECKSUM_PARTIAL). A bridge can bring a packet from a wire
	// to the veth. Such a packet has a whole checksum, or the kernel has joined it with
	// other packets. In the latter case the kernel has verified the checksum first.
	// A segment that such a wire has damaged passes one time in 65536: if the damage
	// leaves exactly the pseudo-header's sum in the field. The CRC of MPA, where it is
	// in use, protects the payload in any case. Without a CRC, and with a wire behind
	// the veth, choose PartialRefused.
	//
	// Departs from RFC 9293 §3.1, which requires that every checksum is verified.
	PartialOnVeth Partial = iota
	// PartialAccepted accepts such segments on every interface. The CRC of MPA is then
	// the only protection of the payload.
	PartialAccepted
	// PartialRefused refuses such segments on every interface.
	PartialRefused
)

// accepts reports whether such segments are accepted on an interface with that
// driver.
func (p Partial) accepts(driver string) bool {
	return p == PartialAccepted || p == PartialOnVeth && loader.DriverNamed(driver).Pair
}

// unsummed returns the error that ends a connection whose peer sends only segments that
// are refused for their checksum. unsummed returns nil if such segments are accepted.
func (n *NIC) unsummed() error {
	if n.cfg.Partial.accepts(n.link.Driver) {
		return nil // no such segment is refused
	}
	return fmt.Errorf("%w: %s", stream.ErrUnsummed, n.net.ChecksumFix(n.link))
}
