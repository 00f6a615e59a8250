package measure

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// rawType is the EtherType of raw frames. IEEE 802 reserves this number for local
// experiments.
const rawType = 0x88b5

// redirector is an XDP program on both ends of a pair. It redirects raw frames to the
// socket of the queue where they arrive, and passes all other packets to the kernel. It
// corresponds to a steering program without flows.
type redirector struct {
	socks [2]*ebpf.Map // maps from a queue to its socket, by side
	links []link.Link
}

// attachRedirect attaches the program to both ends, in native mode.
func attachRedirect(p *pair.Pair) (*redirector, error) {
	r := &redirector{}
	for _, side := range []pair.Side{pair.A, pair.B} {
		if err := p.Do(side, func() error { return r.attach(side, p.Ends[side].Index) }); err != nil {
			r.close()
			return nil, fmt.Errorf("redirect raw frames of side %v: %w", side, err)
		}
	}
	return r, nil
}

func (r *redirector) attach(side pair.Side, ifindex int) (err error) {
	r.socks[side], err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_redirect", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Flags:        unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: redirect(r.socks[side]),
	})
	if err != nil {
		return err
	}
	defer prog.Close() // the link keeps the program
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode})
	if err == nil {
		r.links = append(r.links, l)
	}
	return err
}

// These are offsets in struct xdp_md of linux/bpf.h, and in an Ethernet header.
const (
	mdData    = 0
	mdDataEnd = 4
	mdQueue   = 16
	ethType   = 12
	ethLen    = 14
)

func redirect(socks *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, mdData, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, mdDataEnd, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, ethLen),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R4, asm.R2, ethType, asm.Half),
		asm.HostTo(asm.BE, asm.R4, asm.Half),
		asm.JNE.Imm(asm.R4, rawType, "pass"),
		asm.LoadMem(asm.R2, asm.R1, mdQueue, asm.Word),
		asm.LoadMapPtr(asm.R1, socks.FD()),
		asm.Mov.Imm(asm.R3, xdpPass), // the verdict if the queue has no socket
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
		asm.Return(),
	}
}

// to redirects side's frames to a socket.
func (r *redirector) to(side pair.Side, fd int) error {
	return r.socks[side].Put(uint32(0), uint32(fd))
}

func (r *redirector) close() {
	for _, l := range r.links {
		l.Close()
	}
	for _, m := range r.socks {
		if m != nil {
			m.Close()
		}
	}
}
