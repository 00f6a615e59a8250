package engine_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/packet"
	"github.com/stag-rdma/stag/test/simnic"
)

// parking is an engine on side B of a link, from whose side A a test sends.
type parking struct {
	*testing.T
	link *simnic.Link
	e    *engine.Engine
	dir  *engine.Directory
	now  clock.Instant
}

func newParking(t *testing.T) *parking {
	t.Helper()
	link, err := simnic.New(simnic.Config{Latency: time.Microsecond, Frames: 512})
	if err != nil {
		t.Fatal(err)
	}
	p := &parking{T: t, link: link, now: link.Now()}
	if p.dir, err = engine.NewDirectory(4); err != nil {
		t.Fatal(err)
	}
	if p.e, err = engine.New(link.B(), p.dir, engine.Config{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// send delivers frames to the engine, which processes them.
func (p *parking) send(frames ...[]byte) {
	p.Helper()
	for _, b := range frames {
		var f [1]port.Frame
		if p.link.A().Take(f[:]) != 1 {
			p.Fatal("no frame")
		}
		f[0].Len = uint32(copy(p.link.A().Bytes(f[0]), b))
		if p.link.A().Send(f[:]) != 1 || p.link.A().Flush() != nil {
			p.Fatal("no room")
		}
	}
	p.now = p.now.Add(time.Millisecond)
	p.link.Advance(p.now)
	p.e.Progress(p.now)
}

// park parks a flow and returns its id.
func (p *parking) park(key bpf.FlowKey, heard func()) engine.FlowID {
	p.Helper()
	id, err := p.dir.Reserve(key)
	if err != nil {
		p.Fatal(err)
	}
	p.do(func(ctx context.Context) error { return p.e.Park(ctx, id, key, heard) })
	return id
}

// do calls the engine from outside while it runs.
func (p *parking) do(fn func(context.Context) error) {
	p.Helper()
	done := make(chan error)
	go func() { done <- fn(context.Background()) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				p.Fatal(err)
			}
			return
		default:
			p.e.Progress(p.now)
			runtime.Gosched()
		}
	}
}

// keyOfPeer returns the key of a flow from a port of a peer to the engine.
func keyOfPeer(number uint16) (bpf.FlowKey, error) {
	return bpf.NewFlowKey(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), number), netip.MustParseAddrPort("192.0.2.2:2000"), 0)
}

// segmentOfPeer returns a segment of that flow.
func segmentOfPeer(number uint16) []byte {
	return packet.TCP{IP: packet.IP{Src: fmt.Sprintf("192.0.2.1:%d", number), Dst: "192.0.2.2:2000"}, Flags: "A"}.Bytes()
}

// TestHeard: heard is called once, after the step in which a segment of the parked flow
// has arrived. It is not called for another flow's segment, and not for a router's ICMP
// error.
func TestHeard(t *testing.T) {
	p := newParking(t)
	seg := packet.TCP{Flags: "A"}
	us := packet.IP{Src: "192.0.2.2:2000", Dst: "192.0.2.1:1000"}
	seg.IP = packet.IP{Src: "192.0.2.1:1000", Dst: "192.0.2.2:2000"}
	key, err := bpf.NewFlowKey(netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("192.0.2.2:2000"), 0)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	id := p.park(key, func() { told++ })
	other := seg
	other.IP.Src = "192.0.2.1:1001"
	quote := packet.TCP{IP: us, Flags: "A"}.Bytes()
	p.send(other.Bytes(), packet.TooBig{IP: packet.IP{Src: "192.0.2.9:0", Dst: "192.0.2.2:0"}, MTU: 1400, Quote: quote}.Bytes())
	if told != 0 {
		t.Fatalf("told %d times, and no segment has come", told)
	}
	p.send(seg.Bytes(), seg.Bytes())
	p.send(seg.Bytes())
	if told != 1 {
		t.Errorf("told %d times", told)
	}
	var n int
	p.do(func(ctx context.Context) (err error) {
		n, err = p.e.Parked(ctx, id)
		return err
	})
	if n != 4 { // with the router's packet
		t.Errorf("%d frames are parked", n)
	}
}

// TestHeardWithoutRoom: heard is called for a segment that finds no room among the
// parked ones, too.
func TestHeardWithoutRoom(t *testing.T) {
	p := newParking(t)
	told := [2]int{}
	var segs [2]packet.TCP
	for i := range 2 {
		remote, local := []string{"192.0.2.1:1000", "192.0.2.1:1001"}[i], "192.0.2.2:2000"
		segs[i] = packet.TCP{IP: packet.IP{Src: remote, Dst: local}, Flags: "A"}
		key, err := bpf.NewFlowKey(netip.MustParseAddrPort(remote), netip.MustParseAddrPort(local), 0)
		if err != nil {
			t.Fatal(err)
		}
		p.park(key, func() { told[i]++ })
	}
	for range 300 {
		p.send(segs[0].Bytes())
	}
	p.send(segs[1].Bytes())
	if told != [2]int{1, 1} {
		t.Errorf("told %d times", told)
	}
}
