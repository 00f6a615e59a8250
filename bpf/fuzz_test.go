package bpf_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

// FuzzSteer gives the program any frame. It checks that one reason is counted, that the
// verdict suits the reason, and that the packet is unchanged. It also checks that only
// a packet of a flow is steered, with a record that matches the frame.
func FuzzSteer(f *testing.F) {
	b := standard(f)
	for _, frame := range [][]byte{
		to4(packet.TCP{Payload: fpdu(22, 0xc1, 0x40, 1)}),
		to6(packet.TCP{TS: &packet.TS{}, Payload: fpdu(22, 0xc1, 0x40, 1)}),
		to4(packet.TCP{Link: packet.Link{VLAN: []uint16{100}}}),
		to4(packet.TCP{IP: packet.IP{Options: 1}}),
		to6(packet.TCP{IP: packet.IP{HopByHop: true}}),
		packet.TooBig{Quote: ours(false).Bytes()}.Bytes(),
		packet.TooBig{IP: packet.IP{V6: true}, Quote: ours(true).Bytes(), Cut: 60}.Bytes(),
		packet.UDP{}.Bytes(),
		packet.ARP{}.Bytes(),
	} {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 9000 {
			return // the kernel accepts no such frame in a test run
		}
		b := &bench{t, b.prog, b.maps}
		verdict, record, out, why, err := b.run(frame, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out, frame) {
			t.Errorf("the packet changed to % x", out)
		}
		if why != bpf.Steered {
			if verdict != pass || len(record) != 0 {
				t.Errorf("verdict %d for %v, with %d octets of metadata", verdict, why, len(record))
			}
			return
		}
		if verdict != redirect {
			t.Errorf("verdict %d for %v", verdict, why)
		}
		checkRecord(t, frame, record)
	})
}

// checkRecord checks that a record agrees with the engine's parser. The engine must
// accept every steered segment, because the kernel does not get it.
func checkRecord(t *testing.T, frame, record []byte) {
	t.Helper()
	r, ok := bpf.ParseRecord(record)
	if !ok {
		t.Fatalf("no record: % x", record)
	}
	var p wire.Packet
	if why := wire.ParsePacket(frame, &p); why != wire.OK {
		t.Fatalf("steered, and the engine refuses it: %v", why)
	}
	ends := [2]uint16{p.TCP.SrcPort, p.TCP.DstPort}
	if p.ICMP {
		ends = [2]uint16{p.TooBig.DstPort, p.TooBig.SrcPort}
	}
	if ends != [2]uint16{2000, 1000} && ends != [2]uint16{3260, 1000} {
		t.Errorf("steered with ports %v", ends)
	}
	if p.ICMP != (r.Kind() == bpf.KindICMP) {
		t.Errorf("the record says %v; the engine finds ICMP %v", r.Kind(), p.ICMP)
	}
	if stag, ok := r.STag(); ok && (p.End-p.Payload < 16 || stag != binary.BigEndian.Uint32(frame[p.Payload+4:])) {
		t.Errorf("STag %#x, the frame has another", stag)
	}
}
