package nic_test

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// Segments whose checksum this end has not computed reach the kernel's TCP at the other
// end, which accepts them. A socket there sees what has crossed the cable.
func TestSumsLeft(t *testing.T) {
	for _, c := range []struct {
		name    string
		offload bool       // transmit checksum offload of the interfaces
		sums    afxdp.Sums // of the configuration
		left    bool       // this end leaves checksums
		whole   bool       // the checksums are complete when they arrive
	}{
		{"the kernel computes them", false, afxdp.SumsKernel, true, true},
		{"the kernel computes them, although the device could", true, afxdp.SumsKernel, true, true},
		{"the kernel computes them for a device that does not", false, afxdp.SumsCopy, true, true},
		{"left to a veth", true, 0, true, false},
		{"offload is off", false, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFireIn(t, pair.Config{ChecksumOffload: c.offload}, nic.Config{Sums: c.sums})
			seen := watchSums(t, f.p)
			peers, _ := f.connect(1, func() stream.ULP { return octets.NewEcho() })
			rig.Must(t, exchange(peers[0].(*net.TCPConn), fireVolume))
			whole, partial, wrong := seen()
			g, err := f.card.Look(f.ctx, 0, nil, nil)
			rig.Must(t, err)
			t.Logf("%d checksums left; %d segments arrived with whole ones, %d with partial ones", g.Counters.TxSumsLeft, whole, partial)
			if wrong != 0 {
				t.Errorf("%d segments arrived with a wrong checksum", wrong)
			}
			if left := g.Counters.TxSumsLeft != 0; left != c.left || f.card.Path().Sums != c.left {
				t.Errorf("%d checksums left, and Path says %v: want %v", g.Counters.TxSumsLeft, f.card.Path().Sums, c.left)
			}
			if (partial == 0) != c.whole || c.whole && whole == 0 {
				t.Errorf("%d whole checksums and %d partial ones of long segments arrived: want whole ones %v", whole, partial, c.whole)
			}
			if g.Socket.Kernel.TxInvalid != 0 || g.Socket.Misused != 0 {
				t.Errorf("the kernel refused %d packets, the queue %d", g.Socket.Kernel.TxInvalid, g.Socket.Misused)
			}
		})
	}
}

// watchSums opens a packet socket at side B. The function that it returns counts the
// checksums of the long TCP segments that the socket has got from side A.
func watchSums(t *testing.T, p *pair.Pair) func() (whole, partial, wrong int) {
	t.Helper()
	fd := -1
	netns.In(t, p, pair.B, func() (err error) {
		all := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(all), Ifindex: p.Ends[pair.B].Index}))
	})
	t.Cleanup(func() { unix.Close(fd) })
	return func() (whole, partial, wrong int) {
		for b := make([]byte, 65536); ; {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if errors.Is(err, unix.EAGAIN) {
				return whole, partial, wrong
			}
			rig.Must(t, err)
			var seg wire.Packet
			if wire.ParsePacket(b[:n], &seg) != wire.OK || seg.End-seg.Payload < 512 || !fromA(p, b[:n], &seg) {
				continue
			}
			switch seg.VerifyChecksum(b[:n], false) {
			case wire.OK:
				whole++
			case wire.PartialChecksum:
				partial++
			default:
				wrong++
			}
		}
	}
}

func fromA(p *pair.Pair, b []byte, seg *wire.Packet) bool {
	return string(seg.SrcMAC(b)) == string(p.Ends[pair.A].MAC)
}

// Between two interfaces of stag on a veth nobody computes the checksum of a long segment,
// and the octets arrive.
func TestSumsLeftByBoth(t *testing.T) {
	f := newFireIn(t, pair.Config{ChecksumOffload: true}, nic.Config{})
	var far *nic.NIC
	netns.In(t, f.p, pair.B, func() (err error) {
		far, err = nic.Open(nic.Config{Link: f.p.Ends[pair.B].Name})
		return err
	})
	t.Cleanup(func() { far.Close() })
	plan := octets.Plan{Send: fireVolume, Expect: fireVolume, Seed: 1, PeerSeed: 1}
	peers, flows := f.connect(1, func() stream.ULP { return octets.NewTransfer(plan) })
	theirs, err := far.Take(f.ctx, peers[0].(*net.TCPConn), octets.NewTransfer(plan), nic.DefaultOptions)
	rig.Must(t, err)
	for _, flow := range []*nic.Flow{flows[0], theirs} {
		<-flow.Done()
		if err := flow.Err(); err != nil {
			t.Errorf("the connection ended with %v", err)
		}
	}
	for _, card := range []*nic.NIC{f.card, far} {
		g, err := card.Look(f.ctx, 0, nil, nil)
		rig.Must(t, err)
		if g.Counters.TxSumsLeft == 0 || g.Counters.PartialSums == 0 {
			t.Errorf("%d checksums left, %d partial ones received", g.Counters.TxSumsLeft, g.Counters.PartialSums)
		}
	}
}
