package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/rdma/rendezvous"
)

// meeting opens the Exchange when the first QP needs it: two daemons of one network namespace
// cannot both have one.
type meeting struct {
	mu sync.Mutex
	x  *rendezvous.Exchange
}

func (m *meeting) open(ctx context.Context, a *rdma.Adapter, cfg rendezvous.Config) (*rendezvous.Exchange, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.x == nil {
		x, err := rendezvous.Open(ctx, a, cfg)
		if err != nil {
			return nil, fmt.Errorf("connect QPs by number: %w", err)
		}
		m.x = x
	}
	return m.x, nil
}

func (m *meeting) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.x == nil {
		return nil
	}
	return m.x.Close()
}

// meetLimit is how long the two ends may be apart in time. Programs of InfiniBand exchange
// their numbers first, and then put their QPs into RTR.
const meetLimit = 30 * time.Second

// meet begins to connect the QP to the one that a names (IBV_QPS_RTR). The answer does not
// wait for the connection. What is posted meanwhile waits in the rings. The caller must hold
// q.mu.
func (q *qp) meet(a *proto.QPAttr) error {
	if q.attached {
		return fmt.Errorf("QP %d has a connection, or is making one: %w", q.qp.Number(), unix.EINVAL)
	}
	d := q.client.daemon
	port, err := d.portNumbered(max(1, q.attr.PortNum))
	if err != nil {
		return err
	}
	if int(a.SGIDIndex) >= len(port.Addresses) {
		return fmt.Errorf("entry %d of %d GIDs: %w", a.SGIDIndex, len(port.Addresses), unix.EINVAL)
	}
	local, remote := port.Addresses[a.SGIDIndex].Addr(), netip.AddrFrom16(a.DGID).Unmap()
	if remote.IsLinkLocalUnicast() {
		remote = remote.WithZone(local.Zone())
	}
	x, err := d.meeting.open(q.client.life, d.adapter, d.cfg.Rendezvous)
	if err != nil {
		return err
	}
	p := rdma.ConnParams{Extensions: rdma.ExtRFC7306 | rdma.ExtImmediate, Timeout: meetLimit}
	err = q.client.run(func() {
		if err := x.Connect(q.client.life, q.qp, local, remote, a.DestQPN, p); err != nil {
			q.unmet(err)
		}
	})
	if err == nil {
		q.attached, q.numbered = true, true
	}
	return err
}

// unmet puts the QP into the error state, because there is no connection.
func (q *qp) unmet(err error) {
	q.client.log.Info("QP not connected", "qp", q.qp.Number(), "err", err)
	q.mu.Lock()
	q.attr.State = stateErr
	q.mu.Unlock()
	q.qp.Fail()
	if q.client.life.Err() == nil {
		q.client.tell(proto.Async{Cookie: q.cookie, Event: eventQPFatal, Kind: proto.KindQP}, q.handle, &q.sent)
	}
}
