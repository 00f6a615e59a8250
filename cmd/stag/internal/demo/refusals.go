package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// crime is a forbidden RDMA operation. Side B must refuse it with a Terminate.
type crime struct {
	name   string
	access rdma.Access // access rights of B's region; A gets the ticket of this region
	spoil  func(*victim) error
	forge  func(*ticket)
	op     rdma.WROp
	code   rdma.TerminateCode // code of B's Terminate
}

// Codes of the expected Terminates: layer, type, code (RFC 5040 §4.8, RFC 5041 §7). DDP
// has no code for a Write without the right, so RDMAP's code is expected.
var (
	invalidSTag = rdma.TerminateCode{Layer: 1, Type: 1, Code: 0}
	outOfBounds = rdma.TerminateCode{Layer: 1, Type: 1, Code: 1}
	wrongStream = rdma.TerminateCode{Layer: 1, Type: 1, Code: 2}
	noRight     = rdma.TerminateCode{Layer: 0, Type: 1, Code: 2}
	noReceive   = rdma.TerminateCode{Layer: 1, Type: 2, Code: 2}
)

const anything = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead

var crimes = []crime{
	{name: "write with a wrong key", access: anything, op: rdma.WRWrite, code: invalidSTag,
		forge: func(t *ticket) { t.key ^= 1 }}, // the low octet of the STag is the key, the rest is the index
	{name: "write by a revoked STag", access: anything, op: rdma.WRWrite, code: invalidSTag,
		spoil: func(v *victim) error { return v.region.Invalidate() }},
	{name: "write to a foreign protection domain", access: anything, op: rdma.WRWrite, code: wrongStream,
		spoil: (*victim).moveAway},
	{name: "write to a read-only region", access: rdma.RemoteRead, op: rdma.WRWrite, code: noRight},
	{name: "read of a write-only region", access: rdma.LocalWrite | rdma.RemoteWrite, op: rdma.WRRead, code: noRight},
	// The Write begins directly after the end of the region. The peer checks each segment
	// on its own, so it would place the first segments of a Write that begins within the
	// region.
	{name: "write out of bounds", access: anything, op: rdma.WRWrite, code: outOfBounds,
		forge: func(t *ticket) { t.addr += uint64(t.octets) }},
	{name: "send without a receive", access: anything, op: rdma.WRSend, code: noReceive},
}

// crimeOctets is the size of a region, and the number of octets that each forbidden
// operation writes, reads or sends.
const crimeOctets = 4096

// patience is the longest wait for a refusal. A refusal takes far less time.
const patience = 10 * time.Second

// refusals tries the operations that must be refused, each on its own connection.
func (o Options) refusals(ctx context.Context, s *stage) (all []Refusal, err error) {
	for i := range crimes {
		c := &crimes[i]
		r, err := c.try(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// victim is side B, the target of the forbidden operation. Its region holds a pattern
// that must not change.
type victim struct {
	*host
	a      *rdma.Adapter
	access rdma.Access
	region *rdma.MR
}

func newVictim(a *rdma.Adapter, access rdma.Access) (*victim, error) {
	h, err := newHost(a, 4, crimeOctets, access)
	if err != nil {
		return nil, err
	}
	v := &victim{host: h, a: a, access: access, region: h.ep.MR}
	precious.Fill(v.region.Bytes(), 0)
	return v, nil
}

// moveAway makes the operation use another region, whose protection domain is not that
// of the connection.
func (v *victim) moveAway() (err error) {
	foreign, err := v.a.AllocPD()
	if err != nil {
		return err
	}
	v.closes(foreign.Close)
	if v.region, err = v.memory(foreign, crimeOctets, v.access); err == nil {
		precious.Fill(v.region.Bytes(), 0)
	}
	return err
}

// B's memory holds the pattern precious, and A's memory the pattern evil.
const precious, evil octets.Pattern = 0x900d, 0xbad

// try does the forbidden operation from side A (culprit), and checks that side B (v)
// refuses it.
func (c *crime) try(ctx context.Context, s *stage) (r Refusal, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not refused within %v", patience))
	defer cancel()
	culprit, err := newHost(s.adapters[pair.A], 4, crimeOctets, rdma.LocalWrite)
	if err != nil {
		return Refusal{}, err
	}
	defer func() { err = closing(err, culprit) }()
	loot := culprit.ep.MR
	evil.Fill(loot.Bytes(), 0)
	v, err := newVictim(s.adapters[pair.B], c.access)
	if err != nil {
		return Refusal{}, err
	}
	defer func() { err = closing(err, v.host) }()
	if c.spoil != nil {
		if err := c.spoil(v); err != nil {
			return Refusal{}, err
		}
	}
	if err := s.connect(ctx, culprit.ep.QP, v.ep.QP, nil, ticketFor(v.region).append(nil)); err != nil {
		return Refusal{}, err
	}
	if err := c.commit(culprit.ep.QP, loot); err != nil {
		return Refusal{}, err
	}
	return c.judge(ctx, culprit, v, loot)
}

// closing joins err with the errors of closing h.
func closing(err error, h *host) error {
	if failed := h.close(); failed != nil {
		return and(err, failed)
	}
	return err
}

// commit posts the forbidden operation. Its data is loot, a region of side A. Its
// target is the region in the peer's ticket, which forge may change.
func (c *crime) commit(qp *rdma.QP, loot *rdma.MR) error {
	t, err := parseTicket(qp.Conn().PrivateData)
	if err != nil {
		return err
	}
	if c.forge != nil {
		c.forge(&t)
	}
	wr := rdma.SendWR{Op: c.op, Flags: rdma.Signaled, SGL: []rdma.SGE{loot.SGE(0, crimeOctets)}}
	if c.op != rdma.WRSend {
		wr.RKey, wr.RemoteAddr = t.key, t.addr
	}
	_, err = qp.PostSend(wr)
	return err
}

// judge waits until the connection has ended at both sides. It then checks the errors
// of both sides, and that no memory has changed.
func (c *crime) judge(ctx context.Context, culprit *host, v *victim, loot *rdma.MR) (Refusal, error) {
	told, err := c.refused(ctx, culprit, v)
	if err != nil {
		return Refusal{}, err
	}
	untouched := holds(v.region, precious) && holds(loot, evil)
	if !untouched {
		return Refusal{}, errors.New("it was refused, but memory has changed")
	}
	return Refusal{
		Tried: c.name, Error: told.Error(),
		Code:   codeText(told.Code),
		SentBy: pair.B.String(), Untouched: untouched,
	}, nil
}

func codeText(c rdma.TerminateCode) string {
	return fmt.Sprintf("%x/%x/%02x", c.Layer, c.Type, c.Code)
}

// refused waits until the connection has ended at both sides. It returns the error of side
// A if side B has refused the operation with the expected Terminate.
func (c *crime) refused(ctx context.Context, culprit *host, v *victim) (*rdma.QPError, error) {
	for _, qp := range []*rdma.QP{culprit.ep.QP, v.ep.QP} {
		select {
		case <-qp.Done():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	told, err := c.terminate(culprit.ep.QP.Err(), true)
	if err != nil {
		return nil, fmt.Errorf("side A: %w", err)
	}
	if _, err := c.terminate(v.ep.QP.Err(), false); err != nil {
		return nil, fmt.Errorf("side B: %w", err)
	}
	return told, nil
}

// terminate returns err as a QPError if err is the expected Terminate. Otherwise
// terminate returns an error.
func (c *crime) terminate(err error, remote bool) (*rdma.QPError, error) {
	var told *rdma.QPError
	switch {
	case err == nil:
		return nil, errors.New("the connection ended as if nothing had been wrong")
	case !errors.As(err, &told) || told.Code != c.code || told.Remote != remote:
		return nil, fmt.Errorf("expected a Terminate with %v from side B, and got: %w", c.code, err)
	}
	return told, nil
}

// holds reports whether mr holds only p.
func holds(mr *rdma.MR, p octets.Pattern) bool {
	return p.Differs(mr.Bytes(), 0) < 0
}
