package measure

import (
	"errors"
	"fmt"

	"github.com/asavie/xdp"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// asavieEnd is a raw end over the rings of another library. The code around the rings
// is the same as for stag's rings: the transmit budget, and the limit of frames in
// flight. Close leaves the rings mapped until the pair is deleted.
type asavieEnd struct {
	x      *xdp.Socket
	head   [ethLen]byte
	length uint32 // octets of a frame
	steps  uint64
	kicks  uint64
}

// openAsavie opens side's end. The caller's thread must be in side's namespace.
func openAsavie(s *stage, side pair.Side) (rawEnd, error) {
	const ring = 1024
	x, err := xdp.NewSocket(s.pair.Ends[side].Index, 0, &xdp.SocketOptions{
		NumFrames: rawAsavieFrames[side], FrameSize: 4096,
		FillRingNumDescs: ring, CompletionRingNumDescs: ring, RxRingNumDescs: ring, TxRingNumDescs: ring,
	})
	if err != nil {
		return nil, err
	}
	e := &asavieEnd{x: x, head: s.rawHead(side), length: uint32(s.rawMTU() + ethLen)}
	if side == from {
		err := unix.SetsockoptInt(x.FD(), unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, ring)
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) { // the option exists since Linux 6.17
			return nil, errors.Join(err, x.Close())
		}
		return &asavieSender{e}, nil
	}
	x.Fill(x.GetDescs(rawAsavieFrames[to]))
	if err := s.redirect.to(side, x.FD()); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return &asavieReceiver{e}, nil
}

// rawAsavieFrames is the number of chunks of each side.
var rawAsavieFrames = [2]int{from: rawWindow, to: 512}

func (e *asavieEnd) counts() (w work, err error) {
	s, err := e.x.Stats()
	if err != nil {
		return w, err
	}
	return work{
		Steps: e.steps, RxPackets: s.Received, TxPackets: s.Transmitted, Kicks: e.kicks,
		Lost: s.KernelStats.Rx_dropped + s.KernelStats.Rx_ring_full,
	}, nil
}

func (e *asavieEnd) close() error { return e.x.Close() }

type asavieSender struct{ *asavieEnd }

func (e *asavieSender) step(most int) (int, error) {
	if done := e.x.NumCompleted(); done > 0 {
		e.x.Complete(done)
	}
	descs := e.x.GetDescs(min(most, e.x.NumFreeTxSlots()))
	for i := range descs {
		descs[i].Len = e.length
		copy(e.x.GetFrame(descs[i]), e.head[:])
	}
	if len(descs) == 0 && e.x.NumTransmitted() == 0 {
		return 0, nil
	}
	n := e.x.Transmit(descs)
	e.kicks++
	if n != 0 {
		e.steps++
	}
	return n, nil
}

type asavieReceiver struct{ *asavieEnd }

func (e *asavieReceiver) step(most int) (int, error) {
	n := min(e.x.NumReceived(), most)
	if n == 0 {
		return 0, nil
	}
	e.steps++
	descs := e.x.Receive(n)
	for _, d := range descs {
		if d.Len != e.length {
			return 0, fmt.Errorf("raw receiver: a frame of %d octets, not %d", d.Len, e.length)
		}
	}
	if filled := e.x.Fill(descs); filled != n {
		return 0, fmt.Errorf("raw receiver: the fill ring took %d of %d chunks", filled, n)
	}
	return n, nil
}
