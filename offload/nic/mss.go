package nic

import (
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/offload/handoff"
)

// A frame arrives in one piece and must fit into a chunk. If the interface's MTU is
// larger, the connections announce an MSS with which their frames are no longer than a
// chunk. All other packets go to the kernel, which accepts any number of pieces.

// Headers in front of TCP's options and payload, in octets.
const (
	ethernetLen = 14
	tagLen      = 4
	headers4    = 20 + 20
	headers6    = 40 + 20
)

// longest returns the length of the longest frame that a connection may get, Ethernet
// header included.
func (n *NIC) longest() int { return n.steer.Longest(int(n.cfg.FrameSize)) }

// MSS returns the largest announced MSS with which Take accepts a connection. TCP
// options count, IP and TCP headers do not.
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

// Control makes a socket announce at most MSS. Control is meant for the field Control
// of a net.Dialer or net.ListenConfig. If the interface's MTU is larger than a frame,
// Take refuses connections of sockets that Control has not prepared.
func (n *NIC) Control(network, _ string, c syscall.RawConn) error {
	return handoff.Announce(c, n.MSS(strings.HasSuffix(network, "6")))
}
