package afxdp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// TestRingAt checks that offsets outside the mapping are refused, and that other
// offsets are used as given.
func TestRingAt(t *testing.T) {
	mem := make([]byte, 4096)
	good := unix.XDPRingOffset{Producer: 0, Consumer: 64, Flags: 128, Desc: 192}
	with := func(change func(*unix.XDPRingOffset)) unix.XDPRingOffset {
		o := good
		change(&o)
		return o
	}
	const fits = (4096 - 192) / 16 // 244
	for name, c := range map[string]struct {
		at unix.XDPRingOffset
		n  uint32
	}{
		"too many slots":      {good, fits + 1},
		"very many slots":     {good, ^uint32(0)},
		"no slots":            {good, 0},
		"slots askew":         {with(func(o *unix.XDPRingOffset) { o.Desc = 196 }), 8},
		"slots outside":       {with(func(o *unix.XDPRingOffset) { o.Desc = 1 << 63 }), 8},
		"producer askew":      {with(func(o *unix.XDPRingOffset) { o.Producer = 2 }), 8},
		"producer at the end": {with(func(o *unix.XDPRingOffset) { o.Producer = 4096 }), 8},
		"consumer outside":    {with(func(o *unix.XDPRingOffset) { o.Consumer = ^uint64(3) }), 8},
		"flags half outside":  {with(func(o *unix.XDPRingOffset) { o.Flags = 4094 }), 8},
	} {
		if _, err := ringAt[unix.XDPDesc](mem, c.at, c.n); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := ringAt[unix.XDPDesc](nil, good, 8); err == nil {
		t.Error("no memory: accepted")
	}
	m, err := ringAt[unix.XDPDesc](mem, good, fits)
	rig.Must(t, err)
	m.Producer.Store(0x01010101)
	m.Consumer.Store(0x02020202)
	m.Flags.Store(0x03030303)
	m.Slots[fits-1].Addr = 0x0404040404040404
	for at, want := range map[int]byte{0: 1, 3: 1, 4: 0, 64: 2, 128: 3, 192 + (fits-1)*16: 4} {
		if mem[at] != want {
			t.Errorf("octet %d is %d, want %d", at, mem[at], want)
		}
	}
}
