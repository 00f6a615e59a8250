package rdma

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

var rounds = flag.Int("rounds", 0, "how often each way to take memory back runs under fire; 0: 20, or 150 with STAG_LONG=1")

func takeBackRounds() int {
	switch {
	case *rounds != 0:
		return *rounds
	case os.Getenv("STAG_LONG") == "1":
		return 150
	}
	return 20
}

// takeBack is a way to take memory back. After revoke, the memory belongs to the program.
type takeBack struct {
	lend   func(*siege) STag
	revoke func(*siege)
	local  bool // the target's own requests can use the STag
}

// lendRegion registers the memory.
func (s *siege) lendRegion() STag {
	s.Helper()
	var err error
	s.region, err = s.y.pd.RegMR(s.mem, all|RemoteInvalidate|MWBind)
	s.Must(err)
	return s.region.RKey()
}

// lendWindow binds the window to the memory.
func (s *siege) lendWindow() STag {
	s.Helper()
	s.lendRegion()
	stag := s.y.bind(s.mw, s.region, 0, lentLen, RemoteRead|RemoteWrite|RemoteInvalidate)
	s.y.bound()
	return stag
}

// localInvalidate makes an STag invalid by a work request, and polls its completion.
func (s *siege) localInvalidate(stag STag) {
	s.Helper()
	s.y.post(SendWR{Op: WRLocalInvalidate, Invalidate: stag, Flags: Signaled})
	s.ok(s.y.sent(1))
}

// peerInvalidates makes an STag invalid by the peer's Send, and polls the completion of
// the receive.
func (s *siege) peerInvalidates(stag STag) {
	s.Helper()
	s.y.receive(RecvWR{})
	s.x.post(SendWR{Op: WRSendInvalidate, Invalidate: stag})
	if c := s.ok(s.y.got(1))[0]; c.Invalidated != stag {
		s.Fatalf("%+v", c)
	}
}

var takeBacks = map[string]takeBack{
	"invalidate":        {(*siege).lendRegion, func(s *siege) { s.Must(s.region.Invalidate()) }, true},
	"deregister":        {(*siege).lendRegion, func(s *siege) { s.Must(s.region.Close()) }, true},
	"local invalidate":  {(*siege).lendRegion, func(s *siege) { s.localInvalidate(s.region.LKey()) }, true},
	"peer's invalidate": {(*siege).lendRegion, func(s *siege) { s.peerInvalidates(s.region.RKey()) }, true},
	"rebind": {(*siege).lendWindow, func(s *siege) {
		s.y.bind(s.mw, s.other, 0, 4096, RemoteRead|RemoteWrite)
		s.y.bound()
	}, false},
	"unbind":                     {(*siege).lendWindow, func(s *siege) { s.y.unbind(s.mw) }, false},
	"window's local invalidate":  {(*siege).lendWindow, func(s *siege) { s.localInvalidate(s.mw.RKey()) }, false},
	"window's peer's invalidate": {(*siege).lendWindow, func(s *siege) { s.peerInvalidates(s.mw.RKey()) }, false},
}

// TestNothingAfterTakeBack takes memory back by each verb and work request. Meanwhile a
// peer floods the memory with Writes and Reads, and a region also gets requests and
// receives of its own end. When the verb has returned, or the completion is polled, no octet of the
// memory changes any more, and no octet of it is sent (RFC 5042 §6.2.2, §6.3.3). The memory
// is outside of Go's heap. The offloaded adapters have two engines each.
func TestNothingAfterTakeBack(t *testing.T) {
	for path, newRig := range map[string]func(*testing.T) *rig{
		"kernel port": newLoopback,
		"offloaded":   func(t *testing.T) *rig { return newHosts(t, pair.Config{Queues: 2}) },
	} {
		t.Run(path, func(t *testing.T) {
			for name, c := range takeBacks {
				t.Run(name, func(t *testing.T) {
					s := newSiege(newRig(t))
					for range takeBackRounds() {
						f := s.flooded(&c)
						for range rand.IntN(64) { // at another moment of the flood each time
							runtime.Gosched()
						}
						c.revoke(s)
						s.untouched(f)
						s.Must(s.region.Close())
						if t.Failed() {
							return
						}
					}
				})
			}
		})
	}
}
