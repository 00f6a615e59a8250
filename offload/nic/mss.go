package nic

import (
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/offload/handoff"
)

// A frame arrives in one piece and fits into a chunk. Where the interface's MTU
// is larger, the connections announce segments that are no longer than that,
// and everything else is the kernel's, in as many pieces as it likes.

// Headers in front of TCP's options and payload, in octets.
const (
	ethernetLen = 14
	tagLen      = 4
	headers4    = 20 + 20
	headers6    = 40 + 20
)

// longest is the length of the longest frame that a connection may get, Ethernet
// header included.
func (n *NIC) longest() int { return n.steer.Longest(int(n.cfg.FrameSize)) }

// MSS is the largest that a connection may have announced which Take shall
// take: options count, IP and TCP headers do not.
func (n *NIC) MSS(v6 bool) int {
	mss := n.longest() - ethernetLen - headers4
	if v6 {
		mss -= headers6 - headers4
	}
	if n.cfg.VLAN != 0 {
		mss -= tagLen
	}
	return mss
}

// Control makes a socket announce no more than MSS. It is a Control of a
// net.Dialer or net.ListenConfig: connections of others are refused by Take
// where the interface's MTU is larger than a frame.
func (n *NIC) Control(network, _ string, c syscall.RawConn) error {
	return handoff.Announce(c, n.MSS(strings.HasSuffix(network, "6")))
}
