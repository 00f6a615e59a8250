package rdmap

import "github.com/stag-rdma/stag/tpt"

// Deny replaces the rights that the peer does not have through this QP, whatever the region or
// window gives. An access that needs one of them ends the connection like an access without the
// right of the region. The next segment counts. Any goroutine may call Deny.
func (q *QP) Deny(r tpt.Rights) { q.denied.Store(uint32(r)) }

// Denied returns the rights of Config.Denied, or those of the last Deny.
func (q *QP) Denied() tpt.Rights { return tpt.Rights(q.denied.Load()) }

// checkPeer looks up memory for an access of the peer. As with InfiniBand, the rights of the QP
// come before those of the STag.
func (q *QP) checkPeer(memo *tpt.Memo, a tpt.Access) ([]byte, tpt.Fault) {
	if q.Denied()&a.Right != 0 {
		return nil, tpt.NoRight
	}
	return memo.Check(q.cfg.Table, a)
}
