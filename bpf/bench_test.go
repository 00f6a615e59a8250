package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/test/packet"
)

// BenchmarkSteer measures the program without the kernel's work for its verdict. The first
// row is a program that passes each packet at once: the others include what it costs. Only
// the first few packets of a flow have room for another record in front of them.
func BenchmarkSteer(b *testing.B) {
	p := standard(b)
	// Entries of an engine have a limit for the length.
	b4, b6 := bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live, Longest: 4000}, bpf.Flow{ID: 2, Kind: bpf.KindRDMA, State: bpf.Live, Longest: 4000}
	p.flow(packet.Peer4, packet.Our4, 0, b4)
	p.flow(packet.Peer6, packet.Our6, 0, b6)
	bare, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, pass), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	payload := make([]byte, 1448)
	stranger := packet.TCP{IP: packet.IP{Src: "192.0.2.2:2001"}, Payload: payload}.Bytes()
	for _, c := range []struct {
		name  string
		prog  *ebpf.Program
		frame []byte
	}{
		{"bare pass", bare, stranger},
		{"flow", p.prog, to4(packet.TCP{Payload: payload})},
		{"flow, IPv6", p.prog, to6(packet.TCP{Payload: payload})},
		{"stranger", p.prog, stranger},
		{"UDP", p.prog, packet.UDP{Payload: payload}.Bytes()},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, took, err := c.prog.Benchmark(c.frame, 1_000_000, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds()), "ns/packet")
		})
	}
}
