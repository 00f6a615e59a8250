package bpf_test

import (
	"testing"

	"github.com/stag-rdma/stag/test/packet"
)

// BenchmarkSteer measures the program without the kernel's work for its verdict. One
// packet has a flow, and one has none. Only the first few packets of the flow have room
// for another record in front of them.
func BenchmarkSteer(b *testing.B) {
	p := standard(b)
	payload := make([]byte, 1448)
	for _, c := range []struct {
		name  string
		frame []byte
	}{
		{"flow", to4(packet.TCP{Payload: payload})},
		{"stranger", packet.TCP{IP: packet.IP{Src: "192.0.2.2:2001"}, Payload: payload}.Bytes()},
		{"UDP", packet.UDP{Payload: payload}.Bytes()},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, took, err := p.prog.Benchmark(c.frame, 1_000_000, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds()), "ns/packet")
		})
	}
}
