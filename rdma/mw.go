package rdma

import (
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/tpt"
)

// MWType is the type of a memory window. The names are those of the InfiniBand
// specification (volume 1, §10.6.7.2). libibverbs calls both kinds of type 2 by one
// number.
type MWType = tpt.WindowType

// Types of a memory window.
const (
	// MWType1 is a window of a PD: the peers of all QPs of the PD may use it. A bind
	// replaces the binding before.
	MWType1 = tpt.Type1

	// MWType2A is a window of the QP that has bound it: only the peer of that QP may use
	// it. The window must be unbound or invalidated before it is bound again. The QP's
	// Close unbinds the window.
	MWType2A = tpt.Type2A

	// MWType2B is a window like MWType2A, but Close of the QP returns ErrInUse while the
	// window is bound.
	MWType2B = tpt.Type2B
)

// MW is a memory window: it lets peers access a part of a region, of any length and
// alignment, for a time. Binds and unbinds are work requests (WRBindMW), and need no
// system call and no wait for other engines. An MW is safe for concurrent use.
//
//	stag := mw.NextRKey()
//	qp.PostSend(
//		rdma.SendWR{Op: rdma.WRBindMW, RKey: stag, SGL: []rdma.SGE{mr.SGE(100, 50)}, Access: rdma.RemoteWrite},
//		rdma.SendWR{Op: rdma.WRSend, Inline: tellThePeer(stag)},
//	)
//
// A bind takes effect in its place in the send queue: the work requests behind it may
// tell the peer the STag. The region needs MWBind, and LocalWrite if the window permits
// RemoteWrite or RemoteAtomic. It needs no remote right of its own. The window must be of
// the QP's PD. A list without elements, or an element of length 0, unbinds the window.
//
// With OneTouch in Access, the first Write of a peer ends the binding.
//
// A bind, an unbind, or a WRLocalInvalidate that names the window's STag ends the old
// binding. When its completion is polled, no peer uses the old binding any more, and the
// memory may be reused. A peer's Send with Invalidate unbinds a window that is
// bound to the peer's own QP, or has RemoteInvalidate.
//
// If the table refuses a bind, the completion has TableErr, and the region and the old
// binding stay as they were. The reasons are: no such window or region, another PD or QP,
// a window of type 2 that is still bound, 65535 windows of one region, a missing right,
// octets outside of the region. The error of the QP says which.
//
// A region with bound windows cannot be closed, invalidated or registered again
// (ErrInUse).
type MW struct {
	pd   *PD
	kind MWType

	mu     sync.Mutex // guards the fields below; no engine takes it
	rkey   STag
	closed bool
}

// AllocMW allocates a window, which is not bound. Errors: ErrTableFull, ErrQuota.
func (pd *PD) AllocMW(t MWType) (*MW, error) {
	if err := pd.adapter.refuse("allocate window"); err != nil {
		return nil, err
	}
	mw, err := pd.allocMW(t)
	if err != nil {
		return nil, fmt.Errorf("allocate memory window: %w", err)
	}
	return mw, nil
}

func (pd *PD) allocMW(t MWType) (*MW, error) {
	done, err := pd.adapter.use()
	if err != nil {
		return nil, err
	}
	defer done()
	if err := pd.enter(&pd.mws); err != nil {
		return nil, err
	}
	stag, err := pd.adapter.table.AllocWindow(pd.domain, t)
	if err != nil {
		pd.leave(&pd.mws)
		return nil, err
	}
	return pd.newMW(t, stag), nil
}

func (pd *PD) newMW(t MWType, stag STag) *MW {
	m := &MW{pd: pd, kind: t, rkey: stag}
	if t != MWType1 {
		pd.mu.Lock()
		pd.ofQPs[m] = struct{}{}
		pd.mu.Unlock()
	}
	remember(pd.adapter, &pd.adapter.objects.mws, m)
	return m
}

// RKey returns the STag that NextRKey has returned last, or the STag of a new window.
// The STag is valid from the bind that has it to the unbind, or to the next bind.
func (m *MW) RKey() STag {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rkey
}

// NextRKey returns an STag for the next bind of the window. The STag names the same
// window, and has another, random key, so that a peer that knows the old STag cannot use
// the new binding (as ibv_inc_rkey, which counts).
func (m *MW) NextRKey() STag {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rkey = m.pd.adapter.table.NextSTag(m.rkey)
	return m.rkey
}

// Type returns the window's type.
func (m *MW) Type() MWType { return m.kind }

// Close deallocates the window. Close unbinds it first, and waits for the engines: when
// Close returns, no peer uses the window any more. A bind that is posted and has not
// been performed fails. Close may be called twice, and after the adapter's Close.
func (m *MW) Close() error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	done, err := m.pd.adapter.use()
	if err != nil {
		return nil // the adapter's Close has freed it
	}
	defer done()
	if err := m.pd.adapter.table.DeallocWindow(m.RKey(), m.pd.domain); err != nil {
		return fmt.Errorf("close memory window %v: %w", m.RKey(), err)
	}
	m.pd.mu.Lock()
	delete(m.pd.ofQPs, m)
	m.pd.mu.Unlock()
	forget(m.pd.adapter, &m.pd.adapter.objects.mws, m)
	m.pd.leave(&m.pd.mws)
	return nil
}

// boundTo reports whether the window is bound to the QP of the number, and returns the
// STag of the binding.
func (m *MW) boundTo(number uint32) (STag, bool) {
	info, ok := m.pd.adapter.table.Entry(m.RKey().Index())
	return info.STag, ok && info.Valid && info.QP == number
}

// windowsOf returns the windows of type 2 that are bound to the QP of the number. The
// caller must have called Use.
func (pd *PD) windowsOf(number uint32) (list []*MW) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	for m := range pd.ofQPs {
		if _, bound := m.boundTo(number); bound {
			list = append(list, m)
		}
	}
	return list
}

// keptBy returns ErrInUse while windows of type 2B are bound to the QP.
func (qp *QP) keptBy() error {
	done, err := qp.adapter.device.Use()
	if err != nil {
		return nil // the adapter's Close ends the windows
	}
	defer done()
	if qp.adapter.left.Load() {
		return nil // the windows are another process's
	}
	n := 0
	for _, m := range qp.pd.windowsOf(qp.Number()) {
		if m.kind == MWType2B {
			n++
		}
	}
	if n != 0 {
		return fmt.Errorf("close QP %d: %w by %d windows of type 2B: invalidate or close them first", qp.Number(), ErrInUse, n)
	}
	return nil
}

// unbindWindows unbinds the windows of the QP, which has ended. Another QP that gets its
// number later cannot use them.
func (qp *QP) unbindWindows() {
	done, err := qp.adapter.device.Use()
	if err != nil {
		return
	}
	defer done()
	if qp.adapter.left.Load() {
		return
	}
	for _, m := range qp.pd.windowsOf(qp.Number()) {
		if stag, bound := m.boundTo(qp.Number()); bound {
			_ = qp.adapter.table.Invalidate(stag, qp.pd.domain) // a concurrent Close of the window unbinds it as well
		}
	}
}
