package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// Window is the result of a memory window that side B binds, lets side A use, and unbinds.
type Window struct {
	Region  int    `json:"region_octets"` // length of the region, which has no remote right
	Offset  int    `json:"offset"`        // offset of the window in the region, in octets
	Octets  int    `json:"window_octets"`
	Refused string `json:"refused"` // error at side A of the Write after the unbind
	Code    string `json:"code"`    // layer, type and code of the Terminate, in hexadecimal
}

const (
	loanOffset = 1001 // a window needs no alignment
	loanOctets = 77
)

// afterUnbind is the Write through the window after the unbind.
var afterUnbind = crime{name: "write through a window after its unbind", op: rdma.WRWrite, code: invalidSTag}

// loan is a window with the hosts at both sides.
type loan struct {
	a      *host
	b      *victim
	window *rdma.MW
	stag   rdma.STag
}

// lend shows a memory window. Side B binds a part of a region without remote rights, and
// tells side A the STag in a Send. Side A writes the part. Side B unbinds the window. Side
// A writes again, and is refused.
func (o Options) lend(ctx context.Context, s *stage) (w Window, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not shown within %v", patience))
	defer cancel()
	l, err := newLoan(ctx, s, rdma.LocalWrite|rdma.MWBind)
	if err != nil {
		return Window{}, err
	}
	defer func() { err = closing(closing(err, l.b.host), l.a) }()
	if err := l.bind(ctx); err != nil {
		return Window{}, fmt.Errorf("bind: %w", err)
	}
	if err := l.use(ctx); err != nil {
		return Window{}, fmt.Errorf("write through the window: %w", err)
	}
	return l.revoke(ctx)
}

// newLoan connects two hosts. Side B has a region with the rights access, and a window.
func newLoan(ctx context.Context, s *stage, access rdma.Access) (l *loan, err error) {
	l = &loan{}
	if l.a, err = newHost(s.adapters[pair.A], 4, crimeOctets, rdma.LocalWrite); err != nil {
		return nil, err
	}
	evil.Fill(l.a.ep.MR.Bytes(), 0)
	if l.b, err = newVictim(s.adapters[pair.B], access); err != nil {
		return nil, closing(err, l.a)
	}
	if l.window, err = l.b.ep.PD.AllocMW(rdma.MWType2A); err == nil {
		l.b.closes(l.window.Close)
		err = s.connect(ctx, l.a.ep.QP, l.b.ep.QP, nil, nil)
	}
	if err != nil {
		return nil, closing(closing(err, l.b.host), l.a)
	}
	return l, nil
}

// bind binds the window and sends its STag, by two work requests that are posted at once.
// A host that accepted a connection sends only after its peer has sent, so an empty Read
// comes first.
func (l *loan) bind(ctx context.Context) error {
	note := l.a.ep.MR
	if _, err := l.a.ep.QP.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{note.SGE(0, 4)}}); err != nil {
		return err
	}
	if err := l.a.perform(ctx, rdma.SendWR{Op: rdma.WRRead}); err != nil {
		return err
	}
	l.stag = l.window.NextRKey()
	err := l.b.perform(ctx,
		rdma.SendWR{Op: rdma.WRBindMW, RKey: l.stag, SGL: []rdma.SGE{l.b.region.SGE(loanOffset, loanOctets)}, Access: rdma.RemoteWrite | rdma.RemoteRead},
		rdma.SendWR{Op: rdma.WRSend, Inline: binary.BigEndian.AppendUint32(nil, uint32(l.stag))})
	if err != nil {
		return err
	}
	if err := l.a.completed(ctx); err != nil {
		return err
	}
	if got := rdma.STag(binary.BigEndian.Uint32(note.Bytes())); got != l.stag {
		return fmt.Errorf("side A received STag %v instead of %v", got, l.stag)
	}
	evil.Fill(note.Bytes(), 0)
	return nil
}

// use writes the whole window from side A. The Read behind the Write completes after the
// Write has been placed.
func (l *loan) use(ctx context.Context) error {
	mr, to := l.a.ep.MR, l.b.region.Addr()+loanOffset
	err := l.a.perform(ctx,
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{mr.SGE(0, loanOctets)}, RKey: l.stag, RemoteAddr: to},
		rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{mr.SGE(crimeOctets/2, loanOctets)}, RKey: l.stag, RemoteAddr: to})
	if err != nil {
		return err
	}
	back := mr.Bytes()[crimeOctets/2:][:loanOctets]
	if !bytes.Equal(back, mr.Bytes()[:loanOctets]) || !l.only() {
		return errors.New("the octets are not those that side A wrote")
	}
	return nil
}

// only reports whether side A's octets are in the window, and side B's everywhere else in
// the region.
func (l *loan) only() bool {
	b := l.b.region.Bytes()
	return bytes.Equal(b[loanOffset:][:loanOctets], l.a.ep.MR.Bytes()[:loanOctets]) &&
		precious.Differs(b[:loanOffset], 0) < 0 &&
		precious.Differs(b[loanOffset+loanOctets:], loanOffset+loanOctets) < 0
}

// revoke unbinds the window, and lets side A write once more.
func (l *loan) revoke(ctx context.Context) (Window, error) {
	if err := l.b.perform(ctx, rdma.SendWR{Op: rdma.WRBindMW, RKey: l.window.NextRKey()}); err != nil {
		return Window{}, fmt.Errorf("unbind: %w", err)
	}
	_, err := l.a.ep.QP.PostSend(rdma.SendWR{
		Op: rdma.WRWrite, SGL: []rdma.SGE{l.a.ep.MR.SGE(loanOctets, loanOctets)}, RKey: l.stag, RemoteAddr: l.b.region.Addr() + loanOffset,
	})
	if err != nil {
		return Window{}, err
	}
	told, err := afterUnbind.refused(ctx, l.a, l.b)
	switch {
	case err != nil:
		return Window{}, fmt.Errorf("%s: %w", afterUnbind.name, err)
	case !l.only():
		return Window{}, fmt.Errorf("%s: memory has changed", afterUnbind.name)
	}
	return Window{
		Region: crimeOctets, Offset: loanOffset, Octets: loanOctets,
		Refused: told.Error(), Code: codeText(told.Code),
	}, nil
}

// perform posts requests and waits until the last one has completed.
func (h *host) perform(ctx context.Context, wrs ...rdma.SendWR) error {
	wrs[len(wrs)-1].Flags = rdma.Signaled
	if _, err := h.ep.QP.PostSend(wrs...); err != nil {
		return err
	}
	return h.completed(ctx)
}

// completed waits for the next completion.
func (h *host) completed(ctx context.Context) error {
	c, err := h.ep.Sent(ctx)
	if err == nil && c.Status != rdma.Success {
		err = fmt.Errorf("%v: %v", c.Op, c.Status)
	}
	return err
}
