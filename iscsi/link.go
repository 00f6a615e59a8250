package iscsi

import (
	"context"
	"errors"
	"net/netip"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/rdma"
)

// link is the connection of a Session in the full feature phase: a *adapter.Conn for a
// stream, or an *iser.Initiator.
type link interface {
	// Wake makes a step for what was canceled, closed or aborted.
	Wake()
	// Post makes a step for what was posted.
	Post(inline bool)
	// Runner returns what the program's goroutines run while they wait, or nil.
	Runner() adapter.Runner
	// Device returns the name that reports give to the port of the connection.
	Device() string
}

// link returns the youngest connection, or several as one.
func (s *Session) link() link {
	if s.bundle != nil {
		return s.bundle
	}
	return s.conns[0].link()
}

// wire is a connection to a portal from its beginning to the take-over.
type wire interface {
	Close() error
	Ends() (local, remote netip.AddrPort)
	// converse runs a machine. It reads no octet behind the last PDU.
	converse(ctx context.Context, d pdu.Digests, limit int, m machine) error
	// takeOver makes the flow the owner of the connection. It owns the wire, also after an
	// error.
	takeOver(ctx context.Context, c *sessionConn) (_ link, path string, err error)
}

// reach connects to a portal.
func (s *Session) reach(ctx context.Context, portal string) (wire, error) {
	if s.url.ISER {
		return s.reachISER(ctx, portal)
	}
	sock, err := s.device.Dial(ctx, portal, adapter.DialOptions{})
	if err != nil {
		return nil, err
	}
	return stream{sock}, nil
}

// stream is a wire whose PDUs are a stream of TCP.
type stream struct{ *adapter.Socket }

func (t stream) converse(ctx context.Context, d pdu.Digests, limit int, m machine) error {
	return converse(ctx, t.Socket, d, limit, m)
}

func (t stream) takeOver(ctx context.Context, of *sessionConn) (link, string, error) {
	c, err := t.TakeOver(ctx, of.flow, adapter.TakeOver{Kind: bpf.KindISCSI})
	if err != nil {
		return nil, "", err
	}
	return c, t.Path(), nil
}

// messages is a wire whose PDUs are Sends of RDMA (RFC 7145).
type messages struct {
	*iser.Channel
	slots int // commands and requests that can be in flight
}

// The data segments of control PDUs in the full feature phase, in octets. A target sends
// sense data and little else. The data of a write that is no longer than immediateLength
// leaves in the PDU of the command, if the target takes that.
const (
	answerLength    = 512
	immediateLength = 8192
)

func (s *Session) reachISER(ctx context.Context, portal string) (wire, error) {
	slots := s.slots()
	ch, err := iser.New(iser.InitiatorConfig(s.adapter, slots))
	if err != nil {
		return nil, err
	}
	if err := ch.Dial(ctx, portal); err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	return &messages{ch, slots}, nil
}

func (t *messages) Ends() (local, remote netip.AddrPort) {
	c := t.QP().Conn()
	return c.Local, c.Remote
}

func (t *messages) converse(ctx context.Context, _ pdu.Digests, _ int, m machine) error {
	return t.Converse(ctx, m.Start(nil), m, nil)
}

func (t *messages) takeOver(_ context.Context, c *sessionConn) (link, string, error) {
	p := c.flow.Params()
	long := 0
	if p.ImmediateData {
		long = min(p.MaxSendLength, immediateLength)
	}
	if err := t.Start(p.MaxRecvLength, long); err != nil {
		return nil, "", errors.Join(err, t.Close())
	}
	x, err := iser.NewInitiator(t.Channel, c.flow, t.slots)
	if err != nil {
		return nil, "", err
	}
	return x, x.Path(), nil
}

// ownAdapter returns the configuration of an adapter for one session over the kernel's TCP.
func ownAdapter(u URL, slots int) rdma.Config {
	c := rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 1 << 20, MaxRegions: slots + 16}
	if u.ISER { // loans, and memory for control PDUs, also while a connection follows another
		c.MaxRegions += 2 * (slots + 64)
		c.RegionHeap += 2 * uint64(iser.InitiatorHeap(slots, answerLength, immediateLength))
	}
	return c
}
