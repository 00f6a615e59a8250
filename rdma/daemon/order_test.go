package daemon

import (
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

// knockers are identifiers of one client that connect at the same time to a listener, which
// rejects all of them, so that they can try again.
type knockers struct {
	active, passive *raw
	ea, eb          *events
	qps             []*rawQP
	at              string
}

func newKnockers(s *scene, n int) *knockers {
	k := &knockers{active: s.client(s), passive: s.client(s)}
	k.ea, k.eb = k.active.attach(proto.OpEventChannel), k.passive.attach(proto.OpEventChannel)
	i := k.passive.id(k.eb, 77)
	bound, err := addrPort(k.passive.do(proto.OpBind, i, address("127.0.0.1:0", "")).Address().Src)
	s.Must(err)
	k.at = bound.String()
	k.passive.do(proto.OpListen, i, func(m *proto.Message) { m.Address().Backlog = 64 })
	pd, cq := k.active.pd(), k.active.cq(64, 0, 1).handle
	for range n {
		k.qps = append(k.qps, k.active.qp(proto.QP{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: 4, RecvDepth: 4, SendSGE: 1}))
	}
	return k
}

// knock asks for one connection with each identifier. Its private data is its index.
func (k *knockers) knock(ids []uint64) {
	k.active.Helper()
	for n, i := range ids {
		k.active.do(proto.OpConnect, i, conn(k.qps[n], string(binary.BigEndian.AppendUint32(nil, uint32(n)))))
	}
}

// refuse rejects the next request, and returns its index.
func (k *knockers) refuse() int {
	k.passive.Helper()
	m := k.eb.want(cmConnectRequest)
	k.passive.do(proto.OpReject, m.Handle, nil)
	k.passive.destroy(proto.KindID, m.Handle)
	return int(binary.BigEndian.Uint32(m.PrivateData[:]))
}

// The requests of connections that a program asks for one after the other are told to the
// peer in this order, as with drivers that connect within rdma_connect. Programs such as
// perftest rely on it: connection i of one end is connection i of the other.
func TestConnectionsKeepTheirOrder(t *testing.T) {
	// The order is kept for as long as Order, and a loaded machine may stop this process for
	// longer than the preset.
	s := newScene(t, func(c *Config) { c.Order = rig.Patience })
	for _, size := range []struct{ at, rounds int }{{8, 200}, {32, 20}} {
		t.Run(fmt.Sprint(size.at), func(t *testing.T) {
			k := newKnockers(s, size.at)
			var ids []uint64
			for range size.at {
				ids = append(ids, k.active.routed(k.ea, k.at))
			}
			wrong := 0
			for range size.rounds {
				k.knock(ids)
				kept := true
				for n := range ids {
					kept = k.refuse() == n && kept
				}
				for range ids {
					k.ea.want(cmRejected)
				}
				if !kept {
					wrong++
				}
			}
			if wrong != 0 {
				t.Errorf("the order was not kept in %d of %d rounds", wrong, size.rounds)
			}
		})
	}
}

// silence returns the address of a host that answers no SYN.
func silence(s *scene) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	s.Must(err)
	s.Cleanup(func() { unix.Close(fd) })
	s.Must(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	s.Must(unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	s.Must(err)
	at := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for { // the first fill the queue of the socket
		c, err := net.DialTimeout("tcp", at, 300*time.Millisecond)
		if err != nil {
			return at
		}
		s.Cleanup(func() { c.Close() })
	}
}

// A host that does not answer delays the connections to others only for a moment. They are
// all refused while the attempt to connect to it still runs.
func TestSilentHostDelaysNobody(t *testing.T) {
	s := newScene(t)
	const at, silent = 8, 3
	k := newKnockers(s, at)
	nowhere := silence(s)
	var ids []uint64
	for n := range at {
		to := k.at
		if n == silent {
			to = nowhere
		}
		ids = append(ids, k.active.routed(k.ea, to))
	}
	k.knock(ids)
	seen := map[int]bool{}
	for range at - 1 {
		seen[k.refuse()] = true
	}
	if len(seen) != at-1 || seen[silent] {
		t.Errorf("requests: %v", seen)
	}
	for range at - 1 {
		k.ea.want(cmRejected)
	}
	k.active.destroy(proto.KindID, ids[silent]) // which ends its attempt
}

// A client that ends while its connections wait for their turn leaves nothing behind.
func TestClientEndsWhileConnectionsWait(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Order = time.Hour })
	k := newKnockers(s, 4)
	nowhere := silence(s)
	var ids []uint64
	for range k.qps {
		ids = append(ids, k.active.routed(k.ea, nowhere))
	}
	k.knock(ids)
	k.active.destroy(proto.KindID, ids[2])
	k.active.close()
	s.Eventually("the client is gone", func() bool { return s.daemon.Clients() == 1 })
}
