package afxdp

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
	"golang.org/x/sys/unix"
)

// TestMetadata: the descriptor of a packet without a checksum refers to metadata in front of
// the packet that says where the checksum goes, and no other packet has metadata.
func TestMetadata(t *testing.T) {
	f := newFake(t, small)
	defer f.close(t)
	f.meta, f.info.Sums = true, true
	if !f.Limits().Sums {
		t.Error("Limits does not say that the queue completes checksums")
	}
	var lent [2]port.Frame
	if f.Take(lent[:]) != 2 {
		t.Fatal("no frames")
	}
	for i := range lent {
		lent[i].Addr, lent[i].Len = lent[i].Addr-54, 100
	}
	lent[0].Sum = 34
	front := func(p port.Frame) []byte { return f.mem[p.Addr-port.Metadata : p.Addr] }
	for _, p := range lent {
		copy(front(p), bytes.Repeat([]byte{0xaa}, port.Metadata))
	}
	if n := f.Send(lent[:]); n != 2 {
		t.Fatalf("Send took %d", n)
	}
	got := f.consume(2)
	if got[0].Options != unix.XDP_TX_METADATA || got[1].Options != 0 {
		t.Errorf("options %#x and %#x, want %#x and 0", got[0].Options, got[1].Options, unix.XDP_TX_METADATA)
	}
	m := front(lent[0])
	flags, start, offset := binary.NativeEndian.Uint64(m), binary.NativeEndian.Uint16(m[8:]), binary.NativeEndian.Uint16(m[10:])
	if flags != unix.XDP_TXMD_FLAGS_CHECKSUM || start != 34 || offset != 16 {
		t.Errorf("flags %#x, start %d, offset %d; want %#x, 34, 16", flags, start, offset, unix.XDP_TXMD_FLAGS_CHECKSUM)
	}
	if !bytes.Equal(front(lent[1]), bytes.Repeat([]byte{0xaa}, port.Metadata)) {
		t.Error("a packet with a checksum got metadata")
	}
}

// TestMetadataRefused: the queue refuses what the kernel would refuse, or would send with a
// wrong checksum.
func TestMetadataRefused(t *testing.T) {
	for _, c := range []struct {
		name       string
		meta, sums bool
		back       uint64 // of the packet in front of the frame's address
		sum        uint16
		refused    bool
	}{
		{"the mode completes none", true, false, 54, 34, true},
		{"no metadata at all", false, false, 54, 34, true},
		{"no metadata, and none asked for", false, false, port.Headroom, 0, false},
		{"no room for metadata", true, true, port.Headroom - port.Metadata + 1, 34, true},
		{"no room, and none asked for", true, true, port.Headroom, 0, true},
		{"just room", true, true, port.Headroom - port.Metadata, 34, false},
		{"the header does not fit", true, true, 54, 81, true},
		{"the header just fits", true, true, 54, 80, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, small)
			defer f.close(t)
			f.meta, f.info.Sums = c.meta, c.sums
			var lent [1]port.Frame
			f.Take(lent[:])
			lent[0].Addr, lent[0].Len, lent[0].Sum = lent[0].Addr-c.back, 100, c.sum
			if !c.refused {
				if f.Send(lent[:]) != 1 || f.count.Misused != 0 {
					t.Error("refused")
				}
				return
			}
			if said := panics(t, func() { f.Send(lent[:]) }); !strings.Contains(said, "cannot be sent") {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestSumsModes: who completes checksums depends on the mode that the queue gets.
func TestSumsModes(t *testing.T) {
	for _, c := range []struct {
		s          Sums
		copy, zero bool
	}{{0, false, false}, {SumsCopy, true, false}, {SumsZeroCopy, false, true}, {SumsCopy | SumsZeroCopy, true, true}, {SumsKernel, true, false}} {
		if c.s.in(ModeCopy) != c.copy || c.s.in(ModeZeroCopy) != c.zero {
			t.Errorf("%#x: copy %v, zero copy %v", c.s, c.s.in(ModeCopy), c.s.in(ModeZeroCopy))
		}
	}
	if _, err := (Config{Sums: 8}).fill(); err == nil {
		t.Error("a mode that does not exist is accepted")
	}
}
