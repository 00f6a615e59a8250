package e2e

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// marks makes a side a congested router. It marks one in 8 of the ECN-capable packets to or from the side's kernel. Some
// of these packets have 64 KiB.
func (r *rig) marks(to ebpf.AttachType) {
	r.Helper()
	const next, oneIn = -1, 8 // TCX_NEXT
	spec := &ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetPrandomU32.Call(),
		asm.And.Imm(asm.R0, oneIn-1),
		asm.JNE.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnSkbEcnSetCe.Call(),
		asm.Mov.Imm(asm.R0, next).WithSymbol("out"),
		asm.Return(),
	}}
	prog, err := ebpf.NewProgram(spec)
	r.Must(err)
	r.Cleanup(func() { r.Check(prog.Close()) })
	var l link.Link
	r.in(theirs, func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: r.pair.Ends[theirs].Index, Program: prog, Attach: to})
		return err
	})
	r.Cleanup(func() { r.Check(l.Close()) })
}

// TestECN checks that a connection keeps ECN after the take-over if the kernels have negotiated it. The kernel sees
// ECT(0) on the engine's data. Each end slows down when the other end echoes a mark.
func TestECN(t *testing.T) {
	for _, name := range []string{"reno", "cubic"} {
		for _, w := range ways {
			t.Run(name+"/"+w.String(), func(t *testing.T) {
				r := newRig(t, setup{sysctl: map[string]string{"ipv4/tcp_ecn": "1"}})
				r.in(ours, func() error { return netns.Sysctl("ipv4/tcp_ecn", "1") })
				r.marks(ebpf.AttachTCXIngress)
				r.marks(ebpf.AttachTCXEgress)
				our, peer := r.connect(w)
				r.Must(need.Congestion(t, name, setCongestion(our, name)))
				const volume = 8 << 20
				far := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume}).start()
				ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs, Hold: true})
				f := r.take(our, ulp)
				r.Eventually("all octets have arrived", func() bool {
					return far.received.Load() == volume && ulp.Received() == volume
				})
				if i := r.info(f); !i.ECN || i.Congestion != name || i.KernelCongestion != name {
					t.Errorf("%+v", i)
				}
				if s := r.stats(f); s.CEIn == 0 || s.ECEIn == 0 || s.ECNCuts == 0 || s.ECNCuts > s.ECEIn {
					t.Errorf("marks %d, echoes %d, cuts %d", s.CEIn, s.ECEIn, s.ECNCuts)
				}
				var k *unix.TCPInfo
				r.Must(control(peer, func(fd int) (err error) {
					k, err = unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
					return err
				}))
				const seen = 16 // TCPI_OPT_ECN_SEEN: a packet with ECT has arrived
				if k.Options&seen == 0 || k.Delivered_ce == 0 {
					t.Errorf("the kernel: options %#x, %d of its segments marked", k.Options, k.Delivered_ce)
				}
				r.ends(f, ulp, peer)
			})
		}
	}
}

// TestNoECN checks that the engine sends no ECN-capable packets if the kernels did not negotiate ECN.
func TestNoECN(t *testing.T) {
	r := newRig(t, setup{sysctl: map[string]string{"ipv4/tcp_ecn": "0"}})
	r.marks(ebpf.AttachTCXIngress)
	our, peer := r.connect(way{})
	const volume = 1 << 20
	far := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume}).start()
	ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs, Hold: true})
	f := r.take(our, ulp)
	r.Eventually("all octets have arrived", func() bool {
		return far.received.Load() == volume && ulp.Received() == volume
	})
	if i, s := r.info(f), r.stats(f); i.ECN || s.CEIn+s.ECEIn+s.ECNCuts != 0 {
		t.Errorf("%+v %+v", i, s)
	}
	for _, name := range []string{"InECT0Pkts", "InECT1Pkts", "InCEPkts"} {
		if n := r.tcpCounter(theirs, name); n != 0 {
			t.Errorf("the peer's kernel counts %d %s", n, name)
		}
	}
	r.ends(f, ulp, peer)
}

// ends closes a connection. The peer closes first, so that this side has nothing in TIME-WAIT.
func (r *rig) ends(f *nic.Flow, ulp *octets.Transfer, peer *net.TCPConn) {
	r.Helper()
	r.Check(peer.CloseWrite())
	r.Eventually("the end is known", func() bool { return r.info(f).Phase == tcp.CloseWait })
	ulp.Release()
	f.Ring()
	r.endsWith(f, ulp, nil)
}
