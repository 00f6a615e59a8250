package bpf_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

// FuzzSteer gives the program any frame. Whatever it is: one reason is counted,
// the verdict is the reason's, the packet stays as it was, and only what is
// addressed to a flow is steered, with a record that points into the frame.
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
			return // the kernel runs no program on such
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

// checkRecord demands that a record is right about a frame, by what the frame's
// octets say at the offsets that it gives.
func checkRecord(t *testing.T, frame, record []byte) {
	t.Helper()
	r, ok := bpf.ParseRecord(record)
	if !ok {
		t.Fatalf("no record: % x", record)
	}
	if r.L3() >= r.L4() || r.L4() >= r.Payload() || r.Payload()+r.PayloadLen() > len(frame) {
		t.Fatalf("offsets %d, %d, %d and length %d in %d octets", r.L3(), r.L4(), r.Payload(), r.PayloadLen(), len(frame))
	}
	ports := r.L4()
	if r.Kind() == bpf.KindICMP {
		ports = r.Payload() + 20
		if r.Flags()&bpf.FlagIP6 != 0 {
			ports = r.Payload() + 40
		}
	}
	ends := [2]uint16{binary.BigEndian.Uint16(frame[ports:]), binary.BigEndian.Uint16(frame[ports+2:])}
	if r.Kind() == bpf.KindICMP {
		ends[0], ends[1] = ends[1], ends[0]
	}
	if ends != [2]uint16{2000, 1000} && ends != [2]uint16{3260, 1000} {
		t.Errorf("steered with ports %v", ends)
	}
	checkParse(t, frame, r)
	if stag, ok := r.STag(); ok && stag != binary.BigEndian.Uint32(frame[r.Payload()+4:]) {
		t.Errorf("STag %#x, the frame has another", stag)
	}
}

// checkParse demands that the engine's parser takes what was steered, and finds
// the same in it: otherwise the segment would be lost to both.
func checkParse(t *testing.T, frame []byte, r bpf.Record) {
	t.Helper()
	var p wire.Packet
	if why := wire.ParsePacket(frame, &p); why != wire.OK {
		t.Fatalf("steered, and the engine refuses it: %v", why)
	}
	if p.L3 != r.L3() || p.L4 != r.L4() || p.ICMP != (r.Kind() == bpf.KindICMP) {
		t.Errorf("record %d, %d, %v; the engine finds %d, %d, ICMP %v", r.L3(), r.L4(), r.Kind(), p.L3, p.L4, p.ICMP)
	}
	if !p.ICMP && (p.Payload != r.Payload() || p.End-p.Payload != r.PayloadLen()) {
		t.Errorf("payload at %d+%d; the engine finds %d+%d", r.Payload(), r.PayloadLen(), p.Payload, p.End-p.Payload)
	}
}
