// Package netdev asks the kernel by the generic netlink family "netdev" what a driver and
// the queues of an interface can do, and how they are used.
package netdev

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// These are numbers of the generic netlink family "netdev"
// (include/uapi/linux/netdev.h). The kernel uses the family to report XDP features,
// queues and NAPI of an interface.
const (
	netdevFamily = "netdev"

	netdevDevGet   = 1
	netdevQueueGet = 10
	netdevNAPIGet  = 11

	devIfindex  = 1
	devFeatures = 3
	devPieces   = 4
	devSockets  = 6 // what the driver does for AF_XDP sockets

	napiIfindex = 1
	napiIRQ     = 3
	napiPID     = 4

	queueID      = 1
	queueIfindex = 2
	queueType    = 3 // 0 means a receive queue
	queueXSK     = 7
)

// Features is the set of XDP features that a driver reports.
type Features uint64

// These are the features that stag reads.
const (
	Native   Features = 1 << 0 // the driver runs programs in native mode
	ZeroCopy Features = 1 << 3
	Pieces   Features = 1 << 5 // the driver receives packets in several fragments
)

// Tasks is the set of tasks that a driver takes over from AF_XDP sockets in zero-copy
// mode (XDP_TX_METADATA, Linux 6.8). In copy mode the kernel itself accepts such tasks.
type Tasks uint64

// TxChecksum says that the driver fills in the checksums of packets.
const TxChecksum Tasks = 1 << 1

// attributes holds the attributes of one message, by type.
type attributes map[uint16][]byte

func (a attributes) u32(kind uint16) (uint32, bool) {
	v, ok := a[kind]
	if !ok || len(v) < 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(v), true
}

// genlHeader is struct genlmsghdr: a command, a version, and two octets that must be
// zero.
type genlHeader [4]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// ask sends a command about the interface with this index, in the network namespace
// of the calling OS thread. It returns an error if the kernel does not know the family
// or the command.
func ask(command uint8, flags int, attr int, ifindex int) ([]attributes, error) {
	family, err := netlink.GenlFamilyGet(netdevFamily)
	if err != nil {
		return nil, fmt.Errorf("no netlink family %s (Linux 6.3): %w", netdevFamily, err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), flags)
	req.AddData(genlHeader{command, 1})
	req.AddData(nl.NewRtAttr(attr, nl.Uint32Attr(uint32(ifindex))))
	answers, err := whole(req)
	if err != nil {
		return nil, fmt.Errorf("netlink family %s: %w", netdevFamily, err)
	}
	var all []attributes
	for _, m := range answers {
		if len(m) < nl.SizeofGenlmsg {
			continue
		}
		list, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, fmt.Errorf("netlink family %s: %w", netdevFamily, err)
		}
		a := attributes{}
		for _, attr := range list {
			a[attr.Attr.Type&nl.NLA_TYPE_MASK] = attr.Value
		}
		all = append(all, a)
	}
	return all, nil
}

// whole sends a request of the family, and returns the contents of all answers. The kernel does
// not mark the messages of a dump of this family as parts of one (NLM_F_MULTI), so Execute of
// the request would return the first one only.
func whole(req *nl.NetlinkRequest) (answers [][]byte, err error) {
	req.Flags |= unix.NLM_F_ACK // ends the answer to a request that is no dump
	s, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Send(req); err != nil {
		return nil, err
	}
	for {
		messages, _, err := s.Receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if len(m.Data) >= 4 {
					if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
						return nil, unix.Errno(-errno)
					}
				}
				return answers, nil
			}
			answers = append(answers, m.Data)
		}
	}
}

// FeaturesOf returns the XDP features that the kernel reports for the driver of the
// interface with this index, in the network namespace of the calling OS thread. It fails
// before Linux 6.3.
func FeaturesOf(ifindex int) (Features, error) {
	v, err := deviceWord(ifindex, devFeatures)
	return Features(v), err
}

// TasksOf returns what the kernel reports that the driver of an interface does for AF_XDP
// sockets. Kernels before Linux 6.8 do not report it.
func TasksOf(ifindex int) (Tasks, error) {
	v, err := deviceWord(ifindex, devSockets)
	return Tasks(v), err
}

// PiecesOf returns of how many descriptors a packet in zero-copy mode may consist, of an
// interface whose driver offers zero copy. It fails before Linux 6.6.
func PiecesOf(ifindex int) (int, error) {
	answers, err := ask(netdevDevGet, 0, devIfindex, ifindex)
	if err != nil {
		return 0, err
	}
	for _, a := range answers {
		if n, ok := a.u32(devPieces); ok {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("netlink family %s does not tell of how many pieces a packet of interface %d may be", netdevFamily, ifindex)
}

// deviceWord returns an attribute of 64 bits of an interface.
func deviceWord(ifindex int, attr uint16) (uint64, error) {
	answers, err := ask(netdevDevGet, 0, devIfindex, ifindex)
	if err != nil {
		return 0, err
	}
	for _, a := range answers {
		if v := a[attr]; len(v) >= 8 {
			return binary.NativeEndian.Uint64(v), nil
		}
	}
	return 0, fmt.Errorf("netlink family %s does not tell this of interface %d", netdevFamily, ifindex)
}

// SocketQueues returns the receive queues of an interface that have an AF_XDP socket of
// any process. Before Linux 6.14 the kernel does not report sockets, and the list is
// empty.
func SocketQueues(ifindex int) (queues []int, err error) {
	answers, err := ask(netdevQueueGet, unix.NLM_F_DUMP, queueIfindex, ifindex)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		kind, _ := a.u32(queueType)
		id, ok := a.u32(queueID)
		if _, taken := a[queueXSK]; ok && kind == 0 && taken {
			queues = append(queues, int(id))
		}
	}
	return queues, nil
}

// NAPI is the state of one NAPI instance of an interface.
type NAPI struct {
	IRQ      int  // interrupt number, or 0
	Threaded bool // the instance runs in a kernel thread of its own
}

// NAPIs returns the NAPI instances of an interface. The list may be empty for a virtual
// interface.
func NAPIs(ifindex int) (list []NAPI, err error) {
	answers, err := ask(netdevNAPIGet, unix.NLM_F_DUMP, napiIfindex, ifindex)
	for _, a := range answers {
		irq, _ := a.u32(napiIRQ)
		_, threaded := a[napiPID]
		list = append(list, NAPI{int(irq), threaded})
	}
	return list, err
}
