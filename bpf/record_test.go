package bpf_test

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/test/packet"
)

// want holds the expected fields of a record. stag is compared only with FlagFPDU.
type want struct {
	id    bpf.FlowID
	kind  bpf.Kind
	flags uint8
	owner uint16
	stag  uint32
}

func (w want) check(t *testing.T, record []byte) {
	t.Helper()
	if len(record) != bpf.RecordLen {
		t.Fatalf("%d octets in front of the packet, want %d", len(record), bpf.RecordLen)
	}
	r, ok := bpf.ParseRecord(record)
	if !ok {
		t.Fatalf("no record: % x", record)
	}
	stag, _ := r.STag()
	got := want{r.Flow(), r.Kind(), r.Flags(), r.Owner(), stag}
	if got != w {
		t.Errorf("record says %+v\nwant %+v", got, w)
	}
}

func TestSteered(t *testing.T) {
	b := standard(t)
	const stag = 0xdeadbeef
	write := fpdu(22, 0xc1, 0x40, stag)
	plain := want{id: idRDMA, kind: bpf.KindRDMA, owner: 3}
	with := func(change func(*want)) want { w := plain; change(&w); return w }
	tagged := with(func(w *want) { w.flags, w.stag = bpf.FlagFPDU, stag })
	tooBig := with(func(w *want) { w.kind = bpf.KindICMP })
	iscsi := packet.IP{Src: "192.0.2.2:3260"}
	for _, row := range []struct {
		name  string
		frame []byte
		want  want
	}{
		{"no payload", to4(packet.TCP{}), plain},
		{"padded to 60 octets", to4(packet.TCP{Link: packet.Link{Pad: 6}}), plain},
		{"reset", to4(packet.TCP{Flags: "R"}), plain},
		{"handshake again", to4(packet.TCP{Flags: "S"}), plain},
		{"timestamps", to4(packet.TCP{TS: &packet.TS{Val: 1, Ecr: 2}, Payload: []byte("abc")}), plain},
		{"all the options there can be", to4(packet.TCP{Raw: bytes.Repeat([]byte{1}, 40), Payload: write}), tagged},

		{"RDMA Write", to4(packet.TCP{Payload: write}), tagged},
		{"RDMA Write, more to come", to4(packet.TCP{Payload: fpdu(22, 0x81, 0x40, stag)}), tagged},
		{"Read Response", to4(packet.TCP{Payload: fpdu(22, 0xc1, 0x42, stag)}), tagged},
		{"reserved bits set", to4(packet.TCP{Payload: fpdu(22, 0xfd, 0x70, stag)}), tagged},
		{"smallest FPDU header", to4(packet.TCP{Payload: fpdu(14, 0xc1, 0x40, stag)[:16]}), tagged},
		{"FPDU longer than the segment", to4(packet.TCP{Payload: fpdu(60000, 0xc1, 0x40, stag)}), tagged},

		{"FPDU header cut off", to4(packet.TCP{Payload: write[:15]}), plain},
		{"FPDU header that ends in the padding",
			to4(packet.TCP{IP: packet.IP{LengthChange: -9}, Payload: write}), plain},
		{"ULPDU too short for the header", to4(packet.TCP{Payload: fpdu(13, 0xc1, 0x40, stag)}), plain},
		{"untagged", to4(packet.TCP{Payload: fpdu(22, 0x41, 0x43, stag)}), plain},
		{"DDP version 0", to4(packet.TCP{Payload: fpdu(22, 0xc0, 0x40, stag)}), plain},
		{"DDP version 3", to4(packet.TCP{Payload: fpdu(22, 0xc3, 0x40, stag)}), plain},
		{"RDMAP version 0", to4(packet.TCP{Payload: fpdu(22, 0xc1, 0x00, stag)}), plain},
		{"RDMAP version 2", to4(packet.TCP{Payload: fpdu(22, 0xc1, 0x80, stag)}), plain},

		{"iSCSI is not looked into", packet.TCP{IP: iscsi, Payload: write}.Bytes(),
			with(func(w *want) { w.id, w.kind, w.owner = idISCSI, bpf.KindISCSI, bpf.NoOwner })},
		{"IPv6", to6(packet.TCP{}), plain},
		{"IPv6, RDMA Write", to6(packet.TCP{Payload: write}), tagged},
		{"VLAN", to4(packet.TCP{Link: packet.Link{VLAN: []uint16{100}, Priority: 5}, Payload: write}), tagged},
		{"priority without a VLAN", to4(packet.TCP{Link: packet.Link{VLAN: []uint16{0}, Priority: 5}}), plain},

		{"too big", packet.TooBig{IP: packet.IP{Src: "203.0.113.9:1"}, MTU: 1400, Quote: ours(false).Bytes()}.Bytes(), tooBig},
		{"too big, quoting much", packet.TooBig{Quote: ours(false).Bytes(), Cut: 500}.Bytes(), tooBig},
		{"too big, VLAN", packet.TooBig{Link: packet.Link{VLAN: []uint16{100}}, Quote: ours(false).Bytes()}.Bytes(), tooBig},
		{"too big, IPv6", packet.TooBig{IP: packet.IP{V6: true}, Quote: ours(true).Bytes(), Cut: 48}.Bytes(), tooBig},
		{"in several buffers", to4(packet.TCP{Payload: append(bytes.Clone(write), make([]byte, 8000)...)}), tagged},
	} {
		t.Run(row.name, func(t *testing.T) {
			verdict, record, out, why, err := b.run(row.frame, 0)
			if err != nil {
				t.Fatal(err)
			}
			if verdict != redirect || why != bpf.Steered {
				t.Errorf("verdict %d for %v, want %d for %v", verdict, why, redirect, bpf.Steered)
			}
			if !bytes.Equal(out, row.frame) {
				t.Errorf("the packet changed to % x", out)
			}
			row.want.check(t, record)
		})
	}
}
