package faults

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/packet"
)

// These are verdicts (linux/bpf.h).
const (
	verdictDrop     = 1
	verdictPass     = 2
	verdictRedirect = 4
)

// TestProgram runs the program on single frames.
func TestProgram(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	const always = 65536
	data := make([]byte, 1000)
	seedOurs.Fill(data, 0)
	for _, frame := range []struct {
		name  string
		bytes []byte
	}{
		{"v4", packet.TCP{Payload: data}.Bytes()},
		{"v6", packet.TCP{IP: packet.IP{V6: true}, TS: &packet.TS{Val: 1}, Payload: data}.Bytes()},
		{"v4 FIN", packet.TCP{Flags: "FA", Payload: data}.Bytes()},
		{"v4 ACK", packet.TCP{}.Bytes()},
		{"UDP", packet.UDP{}.Bytes()},
		{"ARP", packet.ARP{}.Bytes()},
	} {
		tcp := frame.name != "UDP" && frame.name != "ARP"
		large := len(frame.bytes) > 1000
		fin := frame.name == "v4 FIN"
		for _, c := range []struct {
			name    string
			plan    planned
			meets   bool // the fault applies to the frame
			verdict uint32
			count   func(Tally) uint64
			changed func(was, is []byte) bool // nil: must be unchanged
		}{
			{"nothing", planned{}, true, verdictRedirect, nil, nil},
			{"routed", planned{Routed: 1}, true, verdictPass, nil, nil},
			{"dropped", planned{Plan: Plan{Drop: always}}, tcp, verdictDrop, func(t Tally) uint64 { return t.Dropped }, nil},
			{"spoilt", planned{Plan: Plan{Spoil: always}}, tcp, verdictRedirect, func(t Tally) uint64 { return t.Spoilt }, oneBit},
			{"swapped", planned{Plan: Plan{Swap: always, Swaps: 1}}, large, verdictRedirect, func(t Tally) uint64 { return t.Swapped }, sameSum},
			{"twice", planned{Plan: Plan{Twice: always}}, tcp, verdictRedirect, func(t Tally) uint64 { return t.Twice }, nil},
			{"late", planned{Plan: Plan{Late: always}}, tcp, verdictPass, func(t Tally) uint64 { return t.Late }, nil},
			{"FIN", planned{Plan: Plan{FINs: 1}}, fin, verdictDrop, func(t Tally) uint64 { return t.FINs }, nil},
			{"large", planned{Plan: Plan{Largest: 1000}}, large, verdictDrop, func(t Tally) uint64 { return t.Vanished }, nil},
			{"not too large", planned{Plan: Plan{Largest: 1500}}, false, verdictDrop, func(t Tally) uint64 { return t.Vanished }, nil},
		} {
			t.Run(frame.name+"/"+c.name, func(t *testing.T) {
				w := loaded(t)
				if err := w.Plans.Put(uint32(0), c.plan); err != nil {
					t.Fatal(err)
				}
				verdict, out := verdictOf(t, w, frame.bytes)
				tally, err := w.tally()
				if err != nil {
					t.Fatal(err)
				}
				want, n := uint32(verdictRedirect), uint64(0)
				if c.meets {
					want, n = c.verdict, 1
				}
				if verdict != want {
					t.Errorf("verdict %d, want %d", verdict, want)
				}
				if c.count != nil && c.count(tally) != n {
					t.Errorf("%v: want %d", tally, n)
				}
				if tcp != (tally.Segments == 1) {
					t.Errorf("%d segments were counted", tally.Segments)
				}
				switch {
				case c.changed != nil && c.meets:
					if !c.changed(frame.bytes, out) {
						t.Errorf("from %x to %x", frame.bytes, out)
					}
				case !bytes.Equal(out, frame.bytes):
					t.Errorf("it was changed from %x to %x", frame.bytes, out)
				}
			})
		}
	}
}

// loaded loads the program without an interface. It redirects to the loopback, where a test run sends nothing.
func loaded(t *testing.T) *way {
	t.Helper()
	w := &way{}
	if err := loadFaultsObjects(&w.faultsObjects, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	for i := range uint32(2) {
		if err := w.Ahead.Put(i, uint32(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Tallies.Put(uint32(0), Tally{State: 12345}); err != nil {
		t.Fatal(err)
	}
	return w
}

func verdictOf(t *testing.T, w *way, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	o := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	verdict, err := w.StagFaults.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, o.DataOut
}

// oneBit reports whether exactly one bit after the Ethernet header differs.
func oneBit(was, is []byte) bool {
	n := 0
	for i := range was {
		n += bits.OnesCount8(was[i] ^ is[i])
	}
	return n == 1 && bytes.Equal(was[:14], is[:14])
}

// sameSum reports whether two frames differ and TCP's checksum is correct in both.
func sameSum(was, is []byte) bool {
	var p wire.Packet
	for _, b := range [][]byte{was, is} {
		if wire.ParsePacket(b, &p) != wire.OK || p.VerifyChecksum(b, false) != wire.OK {
			return false
		}
	}
	return !bytes.Equal(was, is)
}

// TestLuck checks that the program keeps the rates, and that another seed affects other segments.
func TestLuck(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	frame := packet.TCP{Payload: make([]byte, 100)}.Bytes()
	var dropped [2][]int
	for seed := range dropped {
		w := loaded(t)
		if err := w.Tallies.Put(uint32(0), Tally{State: uint64(seed)<<32 | 1}); err != nil {
			t.Fatal(err)
		}
		if err := w.set(Plan{Drop: Percent(10), Late: Percent(10)}); err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			if verdict, _ := verdictOf(t, w, frame); verdict == verdictDrop {
				dropped[seed] = append(dropped[seed], i)
			}
		}
		tally, err := w.tally()
		if err != nil {
			t.Fatal(err)
		}
		if tally.Dropped < 120 || tally.Dropped > 280 || tally.Late < 100 || tally.Late > 260 {
			t.Errorf("%v: want 200 dropped and 180 late, or nearly", tally)
		}
	}
	if len(dropped[0]) == len(dropped[1]) && dropped[0][0] == dropped[1][0] && dropped[0][9] == dropped[1][9] {
		t.Error("two seeds had the same luck")
	}
}
