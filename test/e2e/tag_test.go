package e2e

import (
	"fmt"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
)

// The return codes of the tc hook, and the offset of the VLAN tag in struct __sk_buff (include/uapi/linux/bpf.h).
const (
	tcPass        = 0
	tcDrop        = 2
	vlanPresentAt = 20
	vlanTCIAt     = 24
)

// tagging makes the kernels of both sides communicate only on VLAN id. It is for kernels without VLAN interfaces. Its
// tc programs add the tag to leaving packets and remove it from arriving packets. They drop packets without the tag, as
// a VLAN interface does.
func tagging(t testing.TB, p *pair.Pair, id uint16) {
	t.Helper()
	leave, arrive := program(t, pushTag(id)), program(t, popTag(id))
	for side, end := range p.Ends {
		if err := p.Do(pair.Side(side), func() error { return tagged(t, end.Name, leave, arrive) }); err != nil {
			t.Fatal(err)
		}
	}
}

// tagging is the function tagging for one more cable.
func (r *rig) tagging(here, there string, id uint16) {
	r.Helper()
	leave, arrive := program(r.TB, pushTag(id)), program(r.TB, popTag(id))
	for side, end := range []string{here, there} {
		r.in(pair.Side(side), func() error { return tagged(r.TB, end, leave, arrive) })
	}
}

// tagged attaches the programs to an interface of the calling thread's namespace.
func tagged(t testing.TB, name string, leave, arrive *ebpf.Program) error {
	if err := loader.SetTxVLAN(name, false); err != nil {
		return err
	}
	end, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	if err := hook(t, end.Index, leave, ebpf.AttachTCXEgress); err != nil {
		return err
	}
	return hook(t, end.Index, arrive, ebpf.AttachTCXIngress)
}

func program(t testing.TB, code asm.Instructions) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "vlan", Type: ebpf.SchedCLS, Instructions: code, License: "Dual BSD/GPL",
	})
	if err != nil {
		t.Fatalf("load a tc program: %v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func hook(t testing.TB, index int, p *ebpf.Program, where ebpf.AttachType) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: where})
	if err != nil {
		return fmt.Errorf("attach a tc program: %w", err)
	}
	t.Cleanup(func() { l.Close() })
	return nil
}

func pushTag(id uint16) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(htons(unix.ETH_P_8021Q))),
		asm.Mov.Imm(asm.R3, int32(id)),
		asm.FnSkbVlanPush.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R0, tcDrop),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcPass).WithSymbol("pass"),
		asm.Return(),
	}
}

func popTag(id uint16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, vlanPresentAt, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R1, vlanTCIAt, asm.Word),
		asm.And.Imm(asm.R2, 0xfff),
		asm.JNE.Imm(asm.R2, int32(id), "drop"),
		asm.FnSkbVlanPop.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, tcPass),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcDrop).WithSymbol("drop"),
		asm.Return(),
	}
}
