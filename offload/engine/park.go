package engine

import "github.com/stag-rdma/stag/offload/port"

// parkMax is how many frames one flow may park. Further frames are dropped. The peer
// sends their octets again.
const parkMax = 128

// park keeps a frame until its flow's connection is installed.
func (e *Engine) park(f *flow, fr port.Frame) {
	if f.heard != nil && !e.pkt.ICMP && !f.isNews {
		f.isNews, f.news = true, e.news
		e.news = f
	}
	if len(f.parked) == cap(f.parked) || e.frames.parked >= int(e.limits.RxFrames)/2 {
		e.count.drops[DropParkFull]++
		e.release(fr)
		return
	}
	f.parked = append(f.parked, fr)
	e.frames.parked++
	e.count.Parked++
}

// replay processes f's parked frames in their order of arrival. If the connection is
// installed here, the frames go to the connection. Otherwise the frames go to the
// engine that owns the flow.
func (e *Engine) replay(f *flow) {
	parked := f.parked
	f.parked = nil
	e.frames.parked -= len(parked)
	for _, fr := range parked {
		e.input(fr)
	}
}

// unpark returns f's parked frames to their pools without processing them.
func (e *Engine) unpark(f *flow) {
	for _, fr := range f.parked {
		e.release(fr)
	}
	e.frames.parked -= len(f.parked)
	f.parked = nil
}

// takeNews returns the heard functions of flows whose first segment has arrived.
// takeNews may allocate, because it is rare. The functions run without the token.
func (e *Engine) takeNews() (heard []func()) {
	for f := e.news; f != nil; f = e.news {
		heard = append(heard, f.heard)
		e.news = f.news
		f.heard, f.news = nil, nil
	}
	return heard
}
