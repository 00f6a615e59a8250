package rdma

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A malformed work request is refused.
func TestMalformedWorkRequests(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{qp: QPConfig{MaxSGE: 2, MaxInline: NoInline}})
	e := x.mr.SGE(0, 10)
	huge := SGE{Length: 1<<32 - 1, LKey: x.mr.LKey()}
	good := SendWR{ID: 1, Op: WRSend}
	for says, wr := range map[string]SendWR{
		"operation 99":      {Op: 99},
		"flags 0x80":        {Op: WRSend, Flags: 0x80},
		"3 elements":        {Op: WRSend, SGL: []SGE{e, e, e}},
		"at most":           {Op: WRSend, SGL: []SGE{huge, e}},
		"choose one":        {Op: WRSend, SGL: []SGE{e}, Inline: []byte("x")},
		"MaxInline":         {Op: WRSend, Inline: []byte("x")},
		"leave Solicited":   {Op: WRWrite, Flags: Solicited},
		"leave Inline out":  {Op: WRRead, Inline: []byte("x")},
		"RDMA Read into 2":  {Op: WRRead, SGL: []SGE{e, e}},
		"RDMA Read complet": {Op: WRRead, Flags: Solicited},
	} {
		n, err := x.qp.PostSend(wr, good)
		r.Says(err, ErrBadWR, says, "request 0 of 2")
		if n != 0 {
			r.Errorf("%s: %d posted", says, n)
		}
	}
	again, err := x.pd.RegMR(x.mr.Bytes()[5:], LocalWrite, MROptions{Start: 1 << 40})
	r.Must(err)
	for says, sgl := range map[string][]SGE{
		"3 elements":                 {e, x.mr.SGE(10, 1), x.mr.SGE(11, 1)},
		"at most":                    {huge, e},
		"elements 0 and 1":           {x.mr.SGE(0, 10), x.mr.SGE(9, 10)},
		"elements 0 and 1 of":        {x.mr.SGE(9, 10), x.mr.SGE(0, 10)},
		"elements 0 and 1 of the":    {x.mr.SGE(0, 10), x.mr.SGE(0, 10)},
		"elements 0 and 1 of the li": {x.mr.SGE(0, 6), again.SGE(0, 1)},
	} {
		n, err := x.qp.PostRecv(RecvWR{SGL: sgl})
		r.Says(err, ErrBadWR, says)
		if n != 0 {
			r.Errorf("%s: %d posted", says, n)
		}
	}
	x.receive(RecvWR{SGL: []SGE{x.mr.SGE(0, 5), again.SGE(0, 1)}}, RecvWR{SGL: []SGE{x.mr.SGE(3, 0), x.mr.SGE(0, 10)}})
	r.none(x.send)
	y.receive(RecvWR{})
	x.post(good)
	r.ok(y.got(1))
}

// TestBadRequestInList: the requests before a malformed one are posted, and the error has
// its index, as bad_wr of libibverbs names it. The requests behind it are not posted.
func TestBadRequestInList(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		for at := range 4 {
			sends, receives := make([]SendWR, 4), make([]RecvWR, 4)
			for i := range sends {
				sends[i] = SendWR{ID: uint64(i), Op: WRSend, Flags: Signaled}
				receives[i] = RecvWR{ID: uint64(i)}
			}
			e := y.mr.SGE(0, 1)
			sends[at].Op, receives[at].SGL = 0xf0, []SGE{e, e}
			n, err := y.qp.PostRecv(receives...)
			r.failsAt(at, n, err, fmt.Sprintf("post receive to QP %d: request %d of 4", y.qp.Number(), at))
			n, err = x.qp.PostSend(sends...)
			r.failsAt(at, n, err, fmt.Sprintf("post to QP %d: request %d of 4", x.qp.Number(), at))
			for _, all := range [][]Completion{r.ok(x.sent(at)), r.ok(y.got(at))} {
				for i, c := range all {
					if c.ID != uint64(i) {
						r.Errorf("completion %d is %+v", i, c)
					}
				}
			}
		}
		y.receive(RecvWR{ID: 9}) // a request behind a bad one would complete here
		x.post(SendWR{ID: 9, Op: WRSend, Flags: Signaled})
		if c, d := r.ok(x.sent(1))[0], r.ok(y.got(1))[0]; c.ID != 9 || d.ID != 9 {
			r.Errorf("completions %+v, %+v", c, d)
		}
	})
}

// failsAt checks that a post took the requests before index at, and that err says so.
func (r *rig) failsAt(at, n int, err error, says string) {
	r.Helper()
	r.Says(err, ErrBadWR, says)
	var bad *PostError
	if !errors.As(err, &bad) || bad.Index != at || n != at {
		r.Errorf("%d posted, %+v; want index %d", n, bad, at)
	}
}

// TestPostErrorIndex: the index of an error that is about the queue is that of the first
// request that has not been posted.
func TestPostErrorIndex(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{qp: QPConfig{SendDepth: 4, RecvDepth: 4}})
	fresh := r.newEnd(r.a, wants{})
	for _, c := range []struct {
		post  func() (int, error)
		kind  error
		index int
	}{
		{func() (int, error) { return fresh.qp.PostSend(SendWR{Op: WRSend}, SendWR{Op: WRSend}) }, ErrNotConnected, 0},
		{func() (int, error) { return y.qp.PostRecv(make([]RecvWR, 6)...) }, ErrQueueFull, 4},
		{func() (int, error) { return y.qp.PostRecv(RecvWR{}) }, ErrQueueFull, 0},
	} {
		n, err := c.post()
		var at *PostError
		if !errors.As(err, &at) || !errors.Is(err, c.kind) || at.Index != c.index || n != c.index {
			t.Errorf("%d posted, %v; want %v at %d", n, err, c.kind, c.index)
		}
	}
	r.Must(x.qp.Close())
}

// If the queue has too little room, the requests that fit are posted.
func TestQueueFull(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{qp: QPConfig{SendDepth: 4, RecvDepth: 4}})
	n, err := y.qp.PostRecv(make([]RecvWR, 6)...)
	r.Says(err, ErrQueueFull)
	if n != 4 {
		r.Errorf("%d posted", n)
	}
	wrs := make([]SendWR, 6)
	for i := range wrs {
		wrs[i] = SendWR{ID: uint64(i), Op: WRSend, Flags: Signaled}
	}
	n, err = x.qp.PostSend(wrs...)
	r.Says(err, ErrQueueFull, "request 4 of 6")
	if n != 4 {
		r.Errorf("%d posted", n)
	}
	r.ok(y.got(4))
	n, err = x.qp.PostSend(wrs[4])
	if n != 0 || !errors.Is(err, ErrQueueFull) {
		r.Errorf("the place of an unpolled completion was given out: %d, %v", n, err)
	}
	r.ok(x.sent(4))
	y.receive(RecvWR{})
	x.post(wrs[4])
	r.ok(y.got(1))
}

func TestConfigMistakesAreAllNamed(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		says []string
	}{
		{Config{}, []string{"KernelPort"}},
		{Config{Ports: []string{"a"}, KernelPort: true}, []string{"both"}},
		{Config{Ports: []string{"a", "a", ""}, VLAN: 5, Spin: -1, MaxRegions: -1, MaxRegionsPerPD: -1, MaxPagesPerPD: -1, RegionHeap: 1 << 60, Congestion: "bbr"},
			[]string{"named twice", "no name", "a VLAN, 5", "Spin", "MaxRegions is", "MaxRegionsPerPD", "MaxPagesPerPD is -1", "RegionHeap", `"bbr": choose cubic or reno`}},
	} {
		_, err := Open(c.cfg)
		if err == nil {
			t.Fatalf("%+v: accepted", c.cfg)
		}
		for _, says := range c.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%q does not say %q", err, says)
			}
		}
	}
	r := newLoopback(t)
	pd, err := r.a.AllocPD()
	r.Must(err)
	_, err = pd.CreateQP(QPConfig{SendDepth: -1, RecvDepth: 1 << 20, MaxSGE: 100, MaxInline: -2})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, says := range []string{"SendCQ", "SendDepth", "RecvDepth", "MaxSGE", "MaxInline"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not say %q", err, says)
		}
	}
	for _, depth := range []int{0, -1, maxCQDepth + 1} {
		_, err := r.a.CreateCQ(depth)
		r.Says(err, nil, "depth")
	}
	for _, o := range []struct {
		access Access
		opts   MROptions
		size   int
		says   string
	}{
		{RemoteWrite, MROptions{}, 10, "local write"},
		{0x4000, MROptions{}, 10, "unknown"},
		{ZeroBased, MROptions{Start: 1}, 10, "zero-based"},
		{0, MROptions{Start: 1<<64 - 5}, 10, "offset"},
		{0, MROptions{}, 0, "at least 1"},
	} {
		_, err := pd.AllocMR(o.size, o.access, o.opts)
		r.Says(err, nil, o.says)
	}
	_, err = pd.RegMR(nil, 0)
	r.Says(err, nil, "no memory")
	if at, _ := r.a.Attributes(); at.HeapFree != at.HeapSize || at.Regions != 0 {
		t.Errorf("%+v", at)
	}
}

// A region may begin at any tagged offset, and any memory may be a region.
func TestRegions(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		buf := make([]byte, 1000)
		mr, err := y.pd.RegMR(buf, all, MROptions{Start: 1<<64 - 1000})
		r.Must(err)
		if mr.Addr() != 1<<64-1000 || mr.Len() != 1000 || mr.LKey() != mr.RKey() {
			r.Errorf("%+v", mr)
		}
		x.post(SendWR{Op: WRWrite, Inline: []byte("end"), RKey: mr.RKey(), RemoteAddr: 1<<64 - 3},
			SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: mr.RKey(), RemoteAddr: mr.Addr() + 990})
		r.ok(x.sent(1))
		if string(x.mr.Bytes()[7:10]) != "end" {
			r.Errorf("read %q", x.mr.Bytes()[:10])
		}
		r.Must(mr.Close()) // from now on only the program uses the memory
		if string(buf[997:]) != "end" {
			r.Errorf("written %q", buf[997:])
		}
		defer func() {
			if recover() == nil {
				r.Error("an element outside of the region")
			}
		}()
		x.mr.SGE(64<<10, 1)
	})
}
