package measure

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// These are the verdicts XDP_DROP and XDP_PASS of linux/bpf.h.
const (
	xdpDrop = 1
	xdpPass = 2
)

// passer is an XDP program on all ends of a pair that passes all packets to the
// kernel.
type passer struct {
	prog  *ebpf.Program
	links []link.Link
}

// attachPass attaches the program to the ends of all cables, in native mode.
func attachPass(p *pair.Pair) (*passer, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:    "bench_pass",
		Type:    ebpf.XDP,
		License: "Dual BSD/GPL",
		Flags:   unix.BPF_F_XDP_HAS_FRAGS, // required for an MTU above a page
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, xdpPass),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load a program that passes everything: %w", err)
	}
	s := &passer{prog: prog}
	for _, side := range []pair.Side{pair.A, pair.B} {
		if err := p.Do(side, func() error { return s.attach(p.Ends[side], p.Seconds[side]) }); err != nil {
			s.close()
			return nil, fmt.Errorf("attach it to side %v: %w", side, err)
		}
	}
	return s, nil
}

// attach attaches the program to interfaces of the caller's namespace. An end without an
// index does not exist.
func (s *passer) attach(ends ...pair.End) error {
	for _, end := range ends {
		if end.Index == 0 {
			continue
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: s.prog, Interface: end.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		s.links = append(s.links, l)
	}
	return nil
}

func (s *passer) close() {
	for _, l := range s.links {
		l.Close()
	}
	s.prog.Close()
}
