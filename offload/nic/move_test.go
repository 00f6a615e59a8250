package nic_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestMoveBetweenQueues: a connection that is moved between two queues echoes every
// octet. Its id, its key and its counters stay, and a capture shows packets of both
// engines.
func TestMoveBetweenQueues(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{Queues: 2})
	var card *nic.NIC
	var listener net.Listener
	var conn net.Conn
	netns.In(t, p, pair.B, func() (err error) {
		listener, err = net.Listen("tcp", p.Ends[pair.B].V4.Addr().String()+":0")
		return err
	})
	defer listener.Close()
	netns.In(t, p, pair.A, func() (err error) {
		if card, err = nic.Open(nic.Config{Link: p.Ends[pair.A].Name}); err == nil {
			conn, err = net.Dial("tcp", listener.Addr().String())
		}
		return err
	})
	defer card.Close()
	peer, err := listener.Accept()
	rig.Must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	upper := octets.NewEcho()
	flow, err := card.Take(ctx, conn.(*net.TCPConn), upper, nic.DefaultOptions)
	rig.Must(t, err)
	capture, err := card.Tap(tap.Config{})
	rig.Must(t, err)
	defer capture.End()

	const n = 8 << 20
	echoed := make(chan error, 1)
	go func() { echoed <- exchange(peer.(*net.TCPConn), n) }()
	id, key, moved := flow.ID(), flow.Key(), 0
	for queue := 0; ; queue ^= 1 {
		select {
		case err := <-echoed:
			rig.Must(t, err)
			settled(t, card, flow, upper, moved, n)
			if flow.ID() != id || flow.Key() != key {
				t.Errorf("the flow is %v %v now, it was %v %v", flow.ID(), flow.Key(), id, key)
			}
			return
		default:
		}
		if err := flow.Move(ctx, queue); err == nil {
			moved++
		} else if card.HasFlow(id) && !ended(flow) {
			t.Fatal(err)
		}
	}
}

func ended(f *nic.Flow) bool {
	select {
	case <-f.Done():
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

// settled checks what is known of a flow whose connection has ended.
func settled(t *testing.T, card *nic.NIC, flow *nic.Flow, upper *octets.Echo, moved, n int) {
	t.Helper()
	if !ended(flow) || flow.Err() != nil {
		t.Fatalf("not ended, or %v", flow.Err())
	}
	if upper.Echoed() != uint64(n) || moved == 0 {
		t.Errorf("%d octets echoed of %d, %d moves", upper.Echoed(), n, moved)
	}
	s, err := flow.Stats(context.Background())
	rig.Must(t, err)
	if s != flow.Final() {
		t.Error("the counters at the end differ from Final")
	}
	if err := flow.Move(context.Background(), 2); err == nil || !strings.Contains(err.Error(), "has 2") {
		t.Errorf("a queue that does not exist: %v", err)
	}
	if err := flow.Move(context.Background(), 0); err == nil {
		t.Error("a flow that has ended was moved")
	}
	if card.MaxFlows() == 0 || flow.Held() <= 0 {
		t.Errorf("room for %d flows, held for %v", card.MaxFlows(), flow.Held())
	}
}
