package property

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/test/scenario"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
	"github.com/stag-rdma/stag/tpt"
)

// rig is a world that plays one sequence after the other, each over a new connection.
type rig struct {
	*rand.Rand
	w       *world.World
	weather *scenario.Weather
	watch   *scenario.Watch // watches conn
	tables  [2]*tpt.Table
	boards  [2]signal.Board
	pds     [2]tpt.PD
	others  [2]tpt.PD
	conn    world.Conn
	ends    [2]end

	between func()   // called between two events of the world; may be nil
	gates   [2]*gate // limits what the QPs read and send; nil: no limits
	failed  error    // a move has failed
	moves   int
}

// end is one side of a connection.
type end struct {
	q        *rdmap.QP
	scq, rcq *work.CQ
	mem      memory
	stags    [regions]tpt.STag
	foreign  tpt.STag
	sent     []work.Completion // completions that the test has polled
	received []work.Completion
}

// mild returns the network of a seed's world. Every second network loses, repeats and
// reorders packets.
func mild(seed uint64) *scenario.Weather {
	w := &scenario.Weather{Link: simnic.Config{Seed: seed, Latency: 50 * time.Microsecond}}
	if seed%2 == 0 {
		w.Link.Loss, w.Link.Duplicate, w.Link.Reorder = 0.03, 0.02, 0.1
	}
	return w
}

// newRig makes a world from a seed. Its packets are small, so that a message needs
// several.
func newRig(seed uint64, weather *scenario.Weather) (*rig, error) {
	weather.Link.MTU, weather.Link.FrameSize, weather.Link.Frames = 260, 1024, 256
	weather.Link.PathMTU = 0
	weather.Flow.V6, weather.Flow.MSS = false, 0 // such packets are too small for IPv6
	r := &rig{Rand: rand.New(rand.NewPCG(seed, 1)), weather: weather}
	for i := range r.tables {
		var err error
		if r.tables[i], err = tpt.New(tpt.Config{Entries: 64, Seed: [32]byte{1, byte(i)}}); err != nil {
			return nil, err
		}
		if r.pds[i], err = r.tables[i].NewPD(); err != nil {
			return nil, err
		}
		if r.others[i], err = r.tables[i].NewPD(); err != nil {
			return nil, err
		}
	}
	var err error
	r.w, err = world.New(world.Config{Link: weather.Link, Edit: func(side int, c *engine.Config) {
		c.TCP, c.Table, c.After = weather.TCP, r.tables[side], r.boards[side].Deliver
	}})
	return r, err
}

// open makes the two ends and connects them in a random way.
func (r *rig) open(p *plan) (how string, err error) {
	agreed := [2]mpa.Agreed{{Initiator: true, Revision: 2}, {Revision: 2}}
	if r.IntN(2) == 0 {
		agreed[0].Initiator, agreed[1].Initiator = false, true
	}
	crc, rtr := r.IntN(3) != 0 || r.weather.Link.Forge > 0, mpa.RTR(r.IntN(4))
	depths := [2]uint16{uint16(1 + r.IntN(3)), uint16(1 + r.IntN(3))}
	marks := [2]bool{r.IntN(4) == 0, r.IntN(4) == 0}
	extensions := []wire.Extensions{0, wire.ExtAlignedFPDUs}[r.IntN(2)]
	if (!agreed[0].Initiator && !p.speaks(1) || !agreed[1].Initiator && !p.speaks(0)) && rtr == mpa.NoRTR {
		rtr = mpa.RTRWrite // otherwise the responder could never begin
	}
	for i := range agreed {
		a := &agreed[i]
		a.CRC, a.RTR, a.ORD, a.IRD = crc, rtr, depths[i], depths[1-i]
		a.SendMarkers, a.ReceiveMarkers = marks[i], marks[1-i]
		a.Extensions, a.RFC7306 = extensions, true
		if err := r.ends[i].make(r, i, *a); err != nil {
			return "", err
		}
		for k, list := range p.halves[i].receives {
			if r.ends[i].q.PostRecv(work.RecvWR{ID: uint64(k), SGL: r.ends[i].list(list)}) == 0 {
				return "", fmt.Errorf("no room for receive %d", k)
			}
		}
	}
	flow := r.weather.Flow
	flow.ISN = [2]uint32{r.Uint32(), r.Uint32()}
	r.watch = &scenario.Watch{World: r.w, Weather: r.weather, Ends: [2]*scenario.Seen{{ULP: r.ulp(0)}, {ULP: r.ulp(1)}}}
	r.conn, err = r.w.Connect(flow, r.watch.Ends[0], r.watch.Ends[1])
	r.watch.Begin()
	return fmt.Sprintf("%+v", agreed), err
}

// speaks reports whether side sends a message.
func (p *plan) speaks(side int) bool {
	return slices.ContainsFunc(p.halves[side].requests, func(r request) bool { return r.op != work.WRLocalInvalidate })
}

// make gives an end its QP, and memory with random contents.
func (e *end) make(r *rig, side int, a mpa.Agreed) error {
	*e = end{scq: work.NewCQ(64, &r.boards[side]), rcq: work.NewCQ(64, &r.boards[side])}
	e.scq.News.Fire, e.rcq.News.Fire = func() {}, func() {}
	e.q = rdmap.New(r.config(side))
	e.q.News.Fire = func() {}
	const all = tpt.LocalRead | tpt.LocalWrite | tpt.RemoteRead | tpt.RemoteWrite | tpt.RemoteAtomic | tpt.RemoteInvalidate
	for i := range e.mem {
		e.mem[i] = make([]byte, lengthOf(i))
		for k := range e.mem[i] {
			e.mem[i][k] = byte(r.Uint32())
		}
		rights := all
		if i == local || i == spare {
			rights = tpt.LocalRead | tpt.LocalWrite
		}
		var err error
		e.stags[i], err = r.tables[side].Register(tpt.Region{PD: r.pds[side], Memory: e.mem[i], Start: uint64(i) << 40, Rights: rights})
		if err != nil {
			return err
		}
	}
	var err error
	e.foreign, err = r.tables[side].Register(tpt.Region{PD: r.others[side], Memory: bytes.Clone(e.mem[main]), Rights: all})
	e.q.Start(a)
	return err
}

// config returns the configuration of a side's QP.
func (r *rig) config(side int) rdmap.Config {
	return rdmap.Config{
		Number: uint32(100 + side), PD: r.pds[side], Table: r.tables[side], Board: &r.boards[side],
		SendCQ: r.ends[side].scq, RecvCQ: r.ends[side].rcq, SendDepth: queueDepth, RecvDepth: 2 * queueDepth, MaxSGE: maxSGE, MaxInline: maxInline,
	}
}

// close deregisters the memory of make.
func (r *rig) close() error {
	for i := range r.ends {
		e := &r.ends[i]
		for _, s := range e.stags {
			if err := r.tables[i].Deregister(s, r.pds[i]); err != nil {
				return err
			}
		}
		if err := r.tables[i].Deregister(e.foreign, r.others[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) addr(p place) uint64 { return uint64(p.region)<<40 + uint64(p.off) }

func (e *end) list(places []place) (sgl []work.SGE) {
	for _, p := range places {
		sgl = append(sgl, work.SGE{Addr: e.addr(p), Length: uint32(p.n), LKey: e.stags[p.region]})
	}
	return sgl
}

// unknown is an STag that no table of these tests can contain.
const unknown = 0x00fffff7

// wr returns the work request for a request to peer.
func (e *end) wr(id int, r *request, peer *end) *work.SendWR {
	wr := &work.SendWR{
		ID: uint64(id), Op: r.op, Flags: r.flags, SGL: e.list(r.list), Inline: r.inline,
		RemoteAddr: peer.addr(r.remote), RKey: peer.stags[r.remote.region], Invalidate: peer.stags[r.victim], Imm: r.imm,
		CompareAdd: r.operands[0], Swap: r.operands[1], CompareAddMask: r.operands[2], SwapMask: r.operands[3],
	}
	if r.op == work.WRLocalInvalidate {
		wr.Invalidate = e.stags[spare]
	}
	switch r.fault {
	case writeUnknown, readUnknown:
		wr.RKey = unknown
	case writeOutside, readOutside:
		wr.RemoteAddr += mainLen - 7
	case writeForeign:
		wr.RKey, wr.RemoteAddr = peer.foreign, 0
	case invalidateUnknown:
		wr.Invalidate = unknown
	case localUnknown:
		wr.SGL[0].LKey = unknown
	}
	return wr
}

// play posts the requests of both sides, some at a time, and runs the world until no
// event is left. At the end both QPs are closed.
func (r *rig) play(p *plan) error {
	var posted [2]int
	for posted[0] < len(p.halves[0].requests) || posted[1] < len(p.halves[1].requests) {
		for side := range r.ends {
			e, all := &r.ends[side], p.halves[side].requests
			for n := r.IntN(5); n > 0 && posted[side] < len(all); n-- {
				if e.q.PostSend(*e.wr(posted[side], &all[posted[side]], &r.ends[1-side])) == 0 {
					break
				}
				posted[side]++
			}
			r.ring(side)
		}
		if r.IntN(2) == 0 {
			r.w.Pass(time.Duration(r.IntN(300)) * time.Microsecond)
		}
		r.poll()
	}
	if p.faulty < 0 {
		err := r.until(func() bool { return r.quiet(p) || r.dead() })
		if err != nil && r.weather.Link.Forge == 0 {
			return fmt.Errorf("waiting for all completions: %w", err)
		}
		for _, side := range [...][]int{{0}, {1}, {0, 1}}[r.IntN(3)] {
			q := r.ends[side].q
			switch {
			case q.Dead():
				continue
			case err != nil: // a forged length makes a QP wait for octets that never come
				q.Abort()
			default:
				q.Disconnect()
			}
			r.ring(side)
		}
	}
	err := r.until(r.dead)
	if err != nil && r.weather.Link.Forge != 0 { // the reset of a side that aborted was lost
		for side := range r.ends {
			r.ends[side].q.Abort()
			r.ring(side)
		}
		err = r.until(r.dead)
	}
	r.poll()
	if err != nil {
		return fmt.Errorf("waiting for the end: %w", err)
	}
	return nil
}

// dead reports whether both QPs are dead.
func (r *rig) dead() bool { return r.ends[0].q.Dead() && r.ends[1].q.Dead() }

// ring rings the doorbell after a post.
func (r *rig) ring(side int) {
	if q := r.ends[side].q; q.Dead() {
		q.FlushDead()
		return
	}
	r.w.Engines[side].Ring(r.conn.ID[side])
}

// quiet reports whether all requests have completed and all Sends have been received.
func (r *rig) quiet(p *plan) bool {
	r.poll()
	for side := range r.ends {
		sends := 0
		for i := range p.halves[1-side].requests {
			if p.halves[1-side].requests[i].sends() {
				sends++
			}
		}
		if !r.ends[side].q.Drained() || len(r.ends[side].received) < sends {
			return false
		}
	}
	return true
}

// until runs the world until done returns true. The watch cannot follow a connection that
// moves.
func (r *rig) until(done func() bool) error {
	if r.between == nil {
		return r.watch.Run(done)
	}
	err := r.w.Run(2*time.Hour, func() bool {
		r.between()
		return r.failed != nil || done()
	})
	return errors.Join(r.failed, err)
}

func (r *rig) poll() {
	var some [16]work.Completion
	for i := range r.ends {
		e := &r.ends[i]
		for n := e.scq.Poll(some[:]); n > 0; n = e.scq.Poll(some[:]) {
			e.sent = append(e.sent, some[:n]...)
		}
		for n := e.rcq.Poll(some[:]); n > 0; n = e.rcq.Poll(some[:]) {
			e.received = append(e.received, some[:n]...)
		}
	}
}

// gone reports whether the STag that a completion reports as invalidated is really
// invalid.
func (r *rig) gone(side int, c work.Completion) bool {
	if c.Invalidated == 0 {
		return true
	}
	_, f := r.tables[side].Check(tpt.Access{STag: c.Invalidated, PD: r.pds[side], Right: tpt.LocalRead, TO: uint64(2) << 40, Len: 1})
	return f == tpt.BadSTag
}
