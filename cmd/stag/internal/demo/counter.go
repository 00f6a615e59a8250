package demo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// Counter is the result of adding to one word of side B's memory from several ends.
type Counter struct {
	Peers uint64 `json:"peers"` // peers that added by Fetch and Add
	Each  uint64 `json:"each"`  // additions of each peer, and of the program of side B
	Value uint64 `json:"value"` // the word afterwards, which began with 0
}

const (
	counterPeers = 2
	additions    = 4096 // of each end
	addDepth     = 16   // additions that a peer has outstanding at a time
	wordLen      = 8
)

// counter lets two peers and the program that owns a word add to the word at the same
// time. The peers use Fetch and Add (RFC 7306), and the owner uses sync/atomic. No addition
// may be lost.
func (o Options) counter(ctx context.Context, s *stage) (c Counter, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stallLimit, fmt.Errorf("not counted within %v", stallLimit))
	defer cancel()
	home, err := newHost(s.adapters[pair.B], 1, wordLen, rdma.LocalWrite|rdma.RemoteAtomic)
	if err != nil {
		return Counter{}, err
	}
	defer func() { err = closing(err, home) }()
	word := home.ep.MR.Uint64(0)
	adders := []func(context.Context) error{func(ctx context.Context) error { return addHere(ctx, word) }}
	for range counterPeers {
		p, err := newPeer(ctx, s, home)
		if err != nil {
			return Counter{}, err
		}
		adders = append(adders, func(ctx context.Context) error { return p.add(ctx, home.ep.MR.RKey()) })
	}
	if err := together(ctx, adders); err != nil {
		return Counter{}, err
	}
	c = Counter{Peers: counterPeers, Each: additions, Value: word.Load()}
	if want := (c.Peers + 1) * c.Each; c.Value != want {
		return Counter{}, fmt.Errorf("the counter is %d after %d additions", c.Value, want)
	}
	return c, nil
}

// newPeer makes a host of side A, and connects the host with a QP of home's protection
// domain. home closes both.
func newPeer(ctx context.Context, s *stage, home *host) (*host, error) {
	p, err := newHost(s.adapters[pair.A], addDepth, addDepth*wordLen, rdma.LocalWrite)
	if err != nil {
		return nil, err
	}
	home.closes(p.close)
	ep, err := s.adapters[pair.B].CreateEndpoint(rdma.EndpointConfig{
		MR: home.ep.MR, OneCQ: true, QP: rdma.QPConfig{SendDepth: 1, RecvDepth: 1},
	})
	if err != nil {
		return nil, err
	}
	home.closes(ep.Close)
	return p, s.connect(ctx, p.ep.QP, ep.QP, nil, nil)
}

// together runs all functions at the same time, and waits for all of them. The first error
// ends the others.
func together(ctx context.Context, all []func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, len(all))
	for _, f := range all {
		go func() { ends <- f(ctx) }()
	}
	for range all {
		if failed := <-ends; failed != nil && err == nil {
			err = failed
			cancel()
		}
	}
	return err
}

// addHere adds to the word as its owner does. The pauses let the additions of the peers
// come in between.
func addHere(ctx context.Context, word *atomic.Uint64) error {
	for range additions {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		word.Add(1)
		time.Sleep(time.Microsecond)
	}
	return nil
}

// add adds to the word of key by Fetch and Add.
func (h *host) add(ctx context.Context, key rdma.STag) error {
	for posted, done := 0, 0; done < additions; done++ {
		for ; posted < additions && posted-done < addDepth; posted++ {
			_, err := h.ep.QP.PostSend(rdma.SendWR{
				Op: rdma.WRFetchAdd, Flags: rdma.Signaled, RKey: key, CompareAdd: 1,
				SGL: []rdma.SGE{h.ep.MR.SGE(posted%addDepth*wordLen, wordLen)},
			})
			if err != nil {
				return err
			}
		}
		if _, err := h.ep.Sent(ctx); err != nil {
			return err
		}
	}
	return nil
}
