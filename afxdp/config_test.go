package afxdp_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

func TestConfigComplaints(t *testing.T) {
	for says, c := range map[string]afxdp.Config{
		"FrameSize is 1024: must be 2048 or 4096":         {FrameSize: 1024},
		"FrameSize is 8192":                               {FrameSize: 8192},
		"FrameSize is 3000":                               {FrameSize: 3000},
		"RxFrames is 4294967295: must be at most":         {RxFrames: math.MaxUint32},
		"TxFrames is 1048577: must be at most 1048576":    {TxFrames: 1<<20 + 1},
		"RxRing is 48: must be a power of two":            {RxRing: 48},
		"TxRing is 16: must be a power of two between 32": {TxRing: 16},
		"FillRing is 4294967295: must be a power of two":  {FillRing: math.MaxUint32},
		"CompRing is 2097152: must be a power of two":     {CompRing: 1 << 21},
		"CompRing is 32, TxRing 64: a completion ring":    {CompRing: 32, TxRing: 64},
		"ZeroCopy is 9: must be auto, require or off":     {ZeroCopy: 9},
		"Ifindex is -1": {Ifindex: -1},
		"SendBuffer is 4294967295: must be at most": {SendBuffer: math.MaxUint32},
	} {
		_, err := c.RegionSize()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: error %v, want %q", c, err, says)
		}
	}
	_, err := afxdp.Config{FrameSize: 1, RxRing: 3, ZeroCopy: 7}.RegionSize()
	for _, says := range []string{"FrameSize", "RxRing", "ZeroCopy"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("not all mistakes in one go: %v", err)
		}
	}
}

func TestRegionSize(t *testing.T) {
	for _, c := range []struct {
		conf afxdp.Config
		want uint64
	}{
		{afxdp.Config{}, 8192 * 4096},
		{afxdp.Config{FrameSize: 2048, RxFrames: 3, TxFrames: 1}, 4 * 2048},
		{afxdp.Config{RxFrames: 1 << 20, TxFrames: 1 << 20}, 1 << 33},
	} {
		if got, err := c.conf.RegionSize(); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v; want %d", c.conf, got, err, c.want)
		}
	}
}

func TestArena(t *testing.T) {
	if _, err := afxdp.NewArena(0); err == nil {
		t.Error("an arena of nothing")
	}
	if _, err := afxdp.NewArena(math.MaxUint64); err == nil {
		t.Error("an arena of everything")
	}
	if _, err := afxdp.NewArena(1 << 60); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("an arena larger than the address space: %v", err)
	}
	a, err := afxdp.NewArena(3*4096 - 1)
	rig.Must(t, err)
	if a.Size() != 3*4096 || a.Pages() != afxdp.PagesSmall {
		t.Errorf("%d octets of %v", a.Size(), a.Pages())
	}
	one, err := a.Cut(1)
	rig.Must(t, err)
	two, err := a.Cut(4097)
	rig.Must(t, err)
	if one.Base() != 0 || two.Base() != 4096 || one.Size() != 1 || len(two.Bytes()) != 4097 || cap(two.Bytes()) != 4097 {
		t.Errorf("regions %d+%d, %d+%d", one.Base(), one.Size(), two.Base(), two.Size())
	}
	two.Bytes()[0] = 1
	if one.Bytes()[0] != 0 {
		t.Error("regions overlap")
	}
	for _, size := range []uint64{0, 1, math.MaxUint64, math.MaxUint64 - 4095} {
		if _, err := a.Cut(size); err == nil {
			t.Errorf("cut %d octets from a used-up arena", size)
		}
	}
	rig.Must(t, a.Close())
	rig.Must(t, a.Close())
	if _, err := a.Cut(1); err == nil {
		t.Error("cut a closed arena")
	}
}

// TestRegionClaims checks that Open refuses a bad region before it calls the kernel.
func TestRegionClaims(t *testing.T) {
	c := afxdp.Config{IfName: "lo", Ifindex: 1, RxFrames: 8, TxFrames: 8}
	a, r := newRegion(t, c)
	more := c
	more.RxFrames = 9
	for name, r := range map[string]*afxdp.Region{"too small": r, "none": nil} {
		if _, err := afxdp.Open(more, r); err == nil || !strings.Contains(err.Error(), "needs a region of 69632 octets") {
			t.Errorf("%s: %v", name, err)
		}
	}
	rig.Must(t, a.Close())
	if _, err := afxdp.Open(c, r); err == nil || !strings.Contains(err.Error(), "arena is closed") {
		t.Errorf("closed: %v", err)
	}
}

// TestLimits checks Limits and Info of a queue against its configuration.
func TestLimits(t *testing.T) {
	p := netns.XDPPair(t, pairDefault)
	q := openIn(t, p, 0, scant)
	want := port.Limits{FrameSize: 4096, RxFrames: 64, TxFrames: 48, MaxPacket: 4096, MaxPayload: 4096 - port.Headroom}
	if got := q.Limits(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if i := q.Info(); i.SendBuffer < 48*4096 || i.TxBudget != 32 || i.IfName != p.Ends[0].Name || i.Ifindex != p.Ends[0].Index {
		t.Errorf("%+v", i)
	}
}
