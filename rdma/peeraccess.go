package rdma

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/tpt"
)

// remoteAccess is what a QP can allow its peer.
const remoteAccess = RemoteWrite | RemoteRead | RemoteAtomic

// SetPeerAccess says what the peer may do through this QP: a set of RemoteWrite, RemoteRead and
// RemoteAtomic (qp_access_flags of ibv_modify_qp). A new QP allows all three. An operation of the
// peer needs the flag here and the right of the region or window. Otherwise it ends the connection
// with a Terminate, access rights violation. The flags concern no octet of a Send, and no Write
// without octets. SetPeerAccess works in every state of the QP. The next segment of the peer obeys it.
func (qp *QP) SetPeerAccess(access Access) error {
	if access&^remoteAccess != 0 {
		return fmt.Errorf("set access of QP %d: %v: choose among RemoteWrite, RemoteRead and RemoteAtomic", qp.Number(), access)
	}
	if d := qp.distant; d != nil {
		const maskAccess = 8 // IBV_QP_ACCESS_FLAGS
		err := qp.adapter.through.tell(proto.OpModifyQP, d.handle, func(m *proto.Message) {
			m.QPAttr().Mask, m.QPAttr().Access = maskAccess, uint32(access)
		})
		if err != nil {
			return fmt.Errorf("set access of QP %d: %w", qp.Number(), err)
		}
	}
	qp.machine.Deny(denied(access))
	return nil
}

// PeerAccess returns what the peer may do through this QP.
func (qp *QP) PeerAccess() (access Access) {
	for _, one := range []Access{RemoteWrite, RemoteRead, RemoteAtomic} {
		if qp.machine.Denied()&denied(remoteAccess&^one) == 0 {
			access |= one
		}
	}
	return access
}

// denied returns the rights of peers that are not in access.
func denied(access Access) tpt.Rights {
	r, _ := work.RightsOf(remoteAccess &^ access)
	return r
}
