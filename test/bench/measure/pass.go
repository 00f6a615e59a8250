package measure

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// xdpPass is the verdict XDP_PASS of linux/bpf.h.
const xdpPass = 2

// passer is an XDP program on both ends of a pair that passes all packets to the
// kernel.
type passer struct {
	prog  *ebpf.Program
	links []link.Link
}

// attachPass attaches the program to both ends, in native mode.
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
		err := p.Do(side, func() error {
			l, err := link.AttachXDP(link.XDPOptions{
				Program: prog, Interface: p.Ends[side].Index, Flags: link.XDPDriverMode,
			})
			if err == nil {
				s.links = append(s.links, l)
			}
			return err
		})
		if err != nil {
			s.close()
			return nil, fmt.Errorf("attach it to side %v: %w", side, err)
		}
	}
	return s, nil
}

func (s *passer) close() {
	for _, l := range s.links {
		l.Close()
	}
	s.prog.Close()
}
