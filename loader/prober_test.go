package loader_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func (p *twoPorts) prober(l loader.Link) (q *loader.Prober) {
	p.t.Helper()
	netns.In(p.t, p, pair.A, func() (err error) { q, err = loader.OpenProber(l); return err })
	p.t.Cleanup(func() { rig.Check(p.t, q.Close()) })
	return q
}

// answer returns the answer to a question, which it repeats until it is answered.
func answer(t *testing.T, q *loader.Prober, ask loader.Question) loader.Answer {
	t.Helper()
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	late := time.After(rig.Patience)
	rig.Must(t, q.Ask(ask))
	for {
		select {
		case a := <-q.Answers():
			if a.Target == ask.Target {
				return a
			}
		case <-again.C:
			rig.Must(t, q.Ask(ask))
		case <-late:
			t.Fatalf("no answer to %+v", ask)
		}
	}
}

func TestProber(t *testing.T) {
	rig.NoLeaks(t)
	p := newTwoPorts(t)
	brMAC := p.farMAC()
	for _, c := range []struct {
		name string
		link loader.Link
		src4 netip.Addr
		src6 netip.Addr
		mac  net.HardwareAddr
	}{
		{"broadcast", p.first, p.Ends[pair.A].V4.Addr(), p.Ends[pair.A].V6.Addr(), nil},
		{"unicast", p.first, p.Ends[pair.A].V4.Addr(), p.Ends[pair.A].V6.Addr(), brMAC},
		{"without an address", p.next, netip.Addr{}, netip.Addr{}, nil},
		{"without an address, unicast", p.next, netip.Addr{}, netip.Addr{}, brMAC},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := p.prober(c.link)
			for _, ask := range []loader.Question{{Target: p.peer4, Source: c.src4, MAC: c.mac}, {Target: p.peer6, Source: c.src6, MAC: c.mac}} {
				if a := answer(t, q, ask); a.MAC.String() != brMAC.String() || a.At.IsZero() {
					t.Errorf("%+v: %+v", ask, a)
				}
			}
		})
	}
	// A probe without an address teaches the peer no address of this host.
	if mac := p.hears(p.Ends[pair.A].V4.Addr()); mac == p.next.MAC.String() {
		t.Errorf("the peer takes the prober's interface for the address")
	}
}

func (p *twoPorts) farMAC() (mac net.HardwareAddr) {
	p.t.Helper()
	netns.In(p.t, p, pair.B, func() error {
		br, err := net.InterfaceByName("br0")
		if err == nil {
			mac = br.HardwareAddr
		}
		return err
	})
	return mac
}

// A dead port hears nothing, and the other port hears the same target.
func TestProberTellsThePortsApart(t *testing.T) {
	p := newTwoPorts(t)
	first, next := p.prober(p.first), p.prober(p.next)
	answer(t, first, loader.Question{Target: p.peer4})
	netns.In(t, p, pair.B, func() error { return netns.SetLink(p.Ends[pair.B].Name, false) })
	for len(first.Answers()) > 0 {
		<-first.Answers()
	}
	rig.Must(t, first.Ask(loader.Question{Target: p.peer4}))
	answer(t, next, loader.Question{Target: p.peer4})
	if len(first.Answers()) != 0 {
		t.Error("an answer through a cable that is out")
	}
	netns.In(t, p, pair.A, func() error { return netns.SetLink(p.first.Name, false) })
	rig.Says(t, first.Ask(loader.Question{Target: p.peer4}), loader.ErrLinkDown, p.first.Name)
	// The port is up again, and the same prober hears again.
	netns.In(t, p, pair.A, func() error { return netns.SetLink(p.first.Name, true) })
	netns.In(t, p, pair.B, func() error { return netns.SetLink(p.Ends[pair.B].Name, true) })
	answer(t, first, loader.Question{Target: p.peer4})
	p.ip(pair.A, "link del "+p.first.Name)
	rig.Says(t, first.Ask(loader.Question{Target: p.peer4}), loader.ErrNoLink, p.first.Name)
}

func TestProberRefusals(t *testing.T) {
	p := newTwoPorts(t)
	q := p.prober(p.first)
	for _, ask := range []loader.Question{{}, {Target: p.peer4, Source: p.peer6}, {Target: p.peer6, Source: p.peer4}} {
		rig.Says(t, q.Ask(ask), loader.ErrNoNeighbour)
	}
	rig.Must(t, q.Close())
	if err := q.Ask(loader.Question{Target: p.peer4}); err == nil {
		t.Error("a closed prober asks")
	}
	if _, open := <-q.Answers(); open {
		t.Error("the channel stays open")
	}
	if _, err := loader.OpenProber(loader.Link{Name: "lo", Index: 1}); err == nil {
		t.Error("a prober on an interface that is not Ethernet")
	}
}
