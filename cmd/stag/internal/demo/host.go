package demo

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/offload/undo"
	"github.com/stag-rdma/stag/rdma"
)

// host has the objects that a side needs for one connection.
type host struct {
	ep *rdma.Endpoint // the connection; it has one CQ for both queues
	// undo closes everything in the reverse order.
	undo undo.Stack
}

// newHost makes a QP with room for depth work requests in each queue, and a region.
func newHost(a *rdma.Adapter, depth, octets int, access rdma.Access) (*host, error) {
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: octets, Access: access, QP: rdma.QPConfig{SendDepth: depth, RecvDepth: depth},
	})
	if err != nil {
		return nil, err
	}
	h := &host{ep: ep}
	h.closes(ep.Close)
	return h, nil
}

func (h *host) closes(f func() error) { h.undo.Add(f) }

// memory makes one more region.
func (h *host) memory(pd *rdma.PD, octets int, access rdma.Access) (*rdma.MR, error) {
	mr, err := pd.AllocMR(octets, access)
	if err == nil {
		h.closes(mr.Close)
	}
	return mr, err
}

func (h *host) close() error {
	return h.undo.Run()
}

// ticket has the address, the key and the size of a region, so that the peer can use the
// region. It is sent as private data:
//
//	0          8      12       16
//	| address  | key  | octets |
type ticket struct {
	addr   uint64
	key    rdma.STag
	octets uint32
}

const ticketLen = 16

func ticketFor(mr *rdma.MR) ticket { return ticket{mr.Addr(), mr.RKey(), uint32(mr.Len())} }

func (t ticket) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, t.addr)
	b = binary.BigEndian.AppendUint32(b, uint32(t.key))
	return binary.BigEndian.AppendUint32(b, t.octets)
}

func parseTicket(b []byte) (ticket, error) {
	if len(b) != ticketLen {
		return ticket{}, fmt.Errorf("%d octets of private data, want %d: is the peer another program?", len(b), ticketLen)
	}
	return ticket{
		addr:   binary.BigEndian.Uint64(b),
		key:    rdma.STag(binary.BigEndian.Uint32(b[8:])),
		octets: binary.BigEndian.Uint32(b[12:]),
	}, nil
}
