package engine

import (
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// lavish is a port whose transmit frames the engine has not taken all.
type lavish struct {
	port.Port
	left int
}

func (p *lavish) Take(dst []port.Frame) int {
	n := min(len(dst), p.left)
	p.left -= n
	return n
}

// lending returns an engine with a pool of transmit frames.
func lending(t *testing.T) *Engine {
	engines, _ := joined(t, 1, 4096)
	e := engines[0]
	e.frames.port = &lavish{e.port, int(e.limits.TxFrames)}
	return e
}

// greedy makes a flow of a client, and takes frames for it until there are no more.
func greedy(e *Engine, client uint32, most int) (f *flow, got []port.Frame) {
	g := e.line.clients[client]
	if g == nil {
		g = &group{client: client, most: most}
		e.line.clients[client] = g
	}
	e.opened(1)
	f = &flow{e: e, group: g, quota: 1 << 20}
	for {
		fr, ok := f.Take()
		if !ok {
			return f, got
		}
		got = append(got, fr)
	}
}

// A client whose peers acknowledge nothing leaves frames for others, however many connections it
// has, and however many such clients there are. A client that comes later gets as many frames as is
// left of the rule, and the frames of the others count for it when they come back.
func TestGreedyClients(t *testing.T) {
	e := lending(t)
	all := pool(e.limits)
	held := map[uint32]int{}
	var first []*flow
	frames := map[*flow][]port.Frame{}
	for range 50 {
		f, got := greedy(e, 1, 0)
		first, frames[f] = append(first, f), got
		held[1] += len(got)
	}
	if held[1] < all*6/10 || held[1] > all*2/3+1 {
		t.Errorf("one client holds %d of %d frames, want two thirds", held[1], all)
	}
	before := all - held[1]
	for client := uint32(2); client <= 4; client++ {
		for range 50 {
			_, got := greedy(e, client, 0)
			held[client] += len(got)
		}
		if held[client] < before/3 || e.frames.lent == all {
			t.Errorf("client %d holds %d frames, and %d were free", client, held[client], before)
		}
		before = all - e.frames.lent
	}
	if _, got := greedy(e, 5, 10); len(got) > 10 || len(got) == 0 {
		t.Errorf("a client that may hold 10 frames holds %d", len(got))
	}

	f := first[0]
	e.line.join(f)
	if f.group.waits || !f.group.parked || e.line.n != 0 {
		t.Errorf("a client that holds %d frames waits in the line", f.group.lent)
	}
	if n := e.line.stuck(); n != held[1] {
		t.Errorf("%d frames are stuck, want %d", n, held[1])
	}
	for f, list := range frames {
		for _, fr := range list {
			f.Free(fr)
		}
	}
	e.line.unpark()
	if !f.group.waits || e.line.n != 1 || f.group.lent != 0 || e.line.stuck() != 0 {
		t.Errorf("the client stays parked: %+v", f.group)
	}
}

// The process itself is no client: its flows may use the whole pool.
func TestGreedOfTheProcess(t *testing.T) {
	e := lending(t)
	e.opened(1)
	f := &flow{e: e, quota: 1 << 20}
	for n := 0; ; n++ {
		if _, ok := f.Take(); !ok {
			if n < pool(e.limits)*3/4 {
				t.Errorf("%d frames", n)
			}
			return
		}
	}
}
