package dump

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/rig"
)

// TestHandshake: for a first captured packet of either side, the Request comes from the initiator, and both
// streams continue where the two packets end.
func TestHandshake(t *testing.T) {
	for _, initiator := range []bool{true, false} {
		for _, out := range []bool{true, false} {
			p := captured(frame(t, wire.HeaderFields{VLAN: 7}, wire.TCPFields{Seq: 5, Ack: 2000, Flags: wire.ACK}, make([]byte, 100)))
			p.Out = out
			frames, ok := handshake(p, report.Stream{Initiator: initiator, Revision: 2, CRC: true})
			if !ok {
				t.Fatal("none")
			}
			var pkt [2]wire.Packet
			for i, b := range frames {
				if why := wire.ParsePacket(b, &pkt[i]); why != wire.OK || pkt[i].VerifyChecksum(b, false) != wire.OK || pkt[i].VLAN != 7 {
					t.Fatalf("frame %d: %v", i, why)
				}
				h, rest, ok := wire.ParseMPA(pkt[i].Data(b))
				if !ok || h.Reply() != (i == 1) || h.Flags() != wire.MPACRC || h.Revision() != 2 || len(rest) != 0 || h.PrivateLen() != 0 {
					t.Errorf("frame %d: %v", i, h)
				}
			}
			// The packet goes from port 7174 to 40000.
			from, asks, answers := uint16(7174), seq.Num(5), seq.Num(2000)
			if out != initiator {
				from, asks, answers = 40000, answers, asks
			}
			request, reply := &pkt[0].TCP, &pkt[1].TCP
			if request.SrcPort != from || reply.DstPort != from || request.Seq.Add(20) != asks || request.Ack != reply.Seq || reply.Seq.Add(20) != answers || reply.Ack != asks {
				t.Errorf("initiator %v, out %v: %+v, %+v", initiator, out, request, reply)
			}
		}
	}
}

func TestNoHandshake(t *testing.T) {
	whole := captured(frame(t, wire.HeaderFields{}, seg, make([]byte, 100)))
	cut := whole
	cut.Data = cut.Data[:50]
	for name, c := range map[string]struct {
		p report.Packet
		s report.Stream
	}{
		"Markers sent":     {whole, report.Stream{SendMarkers: true}},
		"Markers received": {whole, report.Stream{RecvMarkers: true}},
		"no ACK":           {captured(frame(t, wire.HeaderFields{}, wire.TCPFields{Seq: 1, Flags: wire.RST}, nil)), report.Stream{}},
		"cut":              {cut, report.Stream{}},
		"no packet":        {captured(nil), report.Stream{}},
	} {
		if _, ok := handshake(c.p, c.s); ok {
			t.Errorf("%s: there is one", name)
		}
	}
}

// TestFileBegins: the two packets come once, before the first packet of their connection and in the same block, so
// that they are never in a file alone.
func TestFileBegins(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	out, err := os.Create(name)
	rig.Must(t, err)
	defer out.Close()
	s := &source{device: "eth1", streams: map[uint32]report.Stream{0x100003: {Initiator: true, CRC: true, Revision: 1}}}
	f, err := newFile(out, []*source{s}, DefaultSnapLen)
	rig.Must(t, err)
	p := packet{Packet: captured(frame(t, wire.HeaderFields{}, seg, make([]byte, 100)))}
	for range 3 {
		rig.Must(t, f.add(s, p))
	}
	if len(f.ends) != 3 {
		t.Errorf("%d blocks for 3 packets", len(f.ends))
	}
	_, err = f.flush()
	rig.Must(t, err)
	in, err := os.Open(name)
	rig.Must(t, err)
	defer in.Close()
	r, err := pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions)
	rig.Must(t, err)
	var lengths []int
	for {
		data, _, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		rig.Must(t, err)
		lengths = append(lengths, len(data))
	}
	if !slices.Equal(lengths, []int{74, 74, 154, 154, 154}) {
		t.Errorf("packets of %v octets", lengths)
	}
}
