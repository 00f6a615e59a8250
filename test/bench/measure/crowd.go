package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// crowdDepth is the depth of the queues of a crowd's QPs.
const crowdDepth = 16

// receives says which receives the QPs of a crowd have.
type receives uint8

const (
	noReceives     receives = iota // a receive queue that nothing was posted to
	ownReceives                    // a full receive queue of ownDepth
	sharedReceives                 // a full SRQ of sharedDepth, for all QPs of a side
)

const (
	ownDepth    = 128 // the default of rdma.QPConfig
	sharedDepth = 1 << 14
)

// crowd is a set of many connections from side A to side B of a stage with adapters.
type crowd struct {
	*stage
	pds  [2]*rdma.PD
	cqs  [2]*rdma.CQ
	srqs [2]*rdma.SRQ  // nil unless the receives are shared
	qps  [2][]*rdma.QP // the QPs, by side; two QPs with the same index may belong to different connections
	list *rdma.Listener

	receives receives
}

// maxCrowd is the largest number of connections of a crowd.
const maxCrowd = 1 << 14

// newCrowd opens adapters with room for many connections.
func newCrowd(ctx context.Context, r receives) (c *crowd, err error) {
	s, err := newStage(setting{stacks: [2]stack{offload, offload}, verb: send, mtu: 1500, flows: maxCrowd})
	if err != nil {
		return nil, err
	}
	c = &crowd{stage: s, receives: r}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for side, a := range s.adapters {
		if c.pds[side], err = a.AllocPD(); err != nil {
			return nil, err
		}
		if c.cqs[side], err = a.CreateCQ(1 << 10); err != nil {
			return nil, err
		}
		if r == sharedReceives {
			if c.srqs[side], err = fullSRQ(c.pds[side]); err != nil {
				return nil, err
			}
		}
	}
	at := net.JoinHostPort(s.pair.Ends[pair.B].V4.Addr().String(), "0")
	c.list, err = s.adapters[pair.B].Listen(ctx, at, rdma.ListenConfig{Backlog: maxCrowd})
	return c, err
}

// fullSRQ makes an SRQ and fills it.
func fullSRQ(pd *rdma.PD) (*rdma.SRQ, error) {
	srq, err := pd.CreateSRQ(rdma.SRQConfig{Depth: sharedDepth})
	if err == nil {
		_, err = srq.PostRecv(make([]rdma.RecvWR, sharedDepth)...)
	}
	return srq, err
}

func (c *crowd) qp(side pair.Side) (*rdma.QP, error) {
	cfg := rdma.QPConfig{SendCQ: c.cqs[side], RecvCQ: c.cqs[side], SendDepth: crowdDepth, RecvDepth: crowdDepth}
	switch c.receives {
	case ownReceives:
		cfg.RecvDepth = ownDepth
	case sharedReceives:
		cfg.RecvDepth, cfg.SRQ = 0, c.srqs[side]
	}
	qp, err := c.pds[side].CreateQP(cfg)
	if err == nil && c.receives == ownReceives {
		_, err = qp.PostRecv(make([]rdma.RecvWR, ownDepth)...)
	}
	return qp, err
}

// grow makes n more connections. It makes at most at connections at the same time.
func (c *crowd) grow(ctx context.Context, n, at int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fresh := [2][]*rdma.QP{}
	for side := range fresh {
		for range n {
			qp, err := c.qp(pair.Side(side))
			if err != nil {
				return err
			}
			fresh[side] = append(fresh[side], qp)
		}
		c.qps[side] = append(c.qps[side], fresh[side]...)
	}
	var wg sync.WaitGroup
	errs := make(chan error, 2*at)
	connect := func(side pair.Side, one func(*rdma.QP) error) {
		var mu sync.Mutex
		for range at {
			wg.Go(func() {
				for {
					mu.Lock()
					left := fresh[side]
					if len(left) == 0 {
						mu.Unlock()
						return
					}
					fresh[side] = left[1:]
					mu.Unlock()
					if err := one(left[0]); err != nil {
						cancel(err)
						errs <- fmt.Errorf("side %v: %w", side, err)
						return
					}
				}
			})
		}
	}
	connect(pair.B, func(qp *rdma.QP) error {
		r, err := c.list.Accept(ctx)
		if err != nil {
			return err
		}
		return r.Accept(ctx, qp, rdma.ConnParams{})
	})
	connect(pair.A, func(qp *rdma.QP) error { return qp.Dial(ctx, c.list.Addr().String(), rdma.ConnParams{}) })
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// ends returns the number of connection ends in this process.
func (c *crowd) ends() int { return len(c.qps[pair.A]) + len(c.qps[pair.B]) }

// broken returns the reason why a connection has ended, or nil.
func (c *crowd) broken() error {
	for side := range c.qps {
		for _, qp := range c.qps[side] {
			if s := qp.State(); s != rdma.RTS {
				return fmt.Errorf("side %v: QP %d is in %v: %w", pair.Side(side), qp.Number(), s, qp.Err())
			}
		}
	}
	return nil
}
