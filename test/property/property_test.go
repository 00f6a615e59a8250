package property

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/work"
)

var (
	seedFlag = flag.Uint64("seed", 0, "play only the world of this seed")
	worlds   = flag.Int("worlds", 250, "how many worlds to play")
)

// perWorld is how many sequences one world plays.
const perWorld = 40

// TestSequences plays 10,000 sequences. A failure prints the seed of its world. The
// command go test ./test/property -seed N plays only that world.
func TestSequences(t *testing.T) {
	if *seedFlag != 0 {
		if err := play(*seedFlag); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for seed := range seeds {
				if err := play(seed); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	for i := range *worlds {
		if t.Failed() {
			break
		}
		seeds <- uint64(i + 1)
	}
	close(seeds)
	wg.Wait()
	if t.Logf("%d octets were placed out of order", outOfOrder.Load()); outOfOrder.Load() == 0 && *worlds > 10 {
		t.Error("nothing was placed out of order, so these sequences do not test that")
	}
}

// outOfOrder counts the octets of payload that were placed out of order.
var outOfOrder atomic.Uint64

// play plays the sequences of one world.
func play(seed uint64) error {
	r, err := newRig(seed, mild(seed))
	if err != nil {
		return err
	}
	g := &generator{Rand: r.Rand}
	for i := range perWorld {
		if err := r.sequence(g.plan()); err != nil {
			return fmt.Errorf("sequence %d: %w", i, err)
		}
	}
	return nil
}

// sequence plays one sequence over a connection of its own.
func (r *rig) sequence(p *plan) error {
	how, err := r.open(p)
	if err == nil {
		before := [2]memory{r.ends[0].mem.clone(), r.ends[1].mem.clone()}
		if err = r.play(p); err == nil {
			err = r.judge(p, before)
		}
	}
	for i := range r.ends {
		outOfOrder.Add(r.ends[i].q.Stats().OutOfOrderOctetsIn)
	}
	if err == nil {
		err = r.close()
	}
	if err != nil {
		return fmt.Errorf("%w\n%v%s\nside 0: %v, cause %+v\nsent %v\nreceived %v\nside 1: %v, cause %+v\nsent %v\nreceived %v", err, p, how,
			r.ends[0].q.State(), r.ends[0].q.Cause(), r.ends[0].sent, r.ends[0].received,
			r.ends[1].q.State(), r.ends[1].q.Cause(), r.ends[1].sent, r.ends[1].received)
	}
	return nil
}

// judge compares the results with the model.
func (r *rig) judge(p *plan, before [2]memory) error {
	for side := range r.ends {
		d := model(p, side, before[side], before[1-side])
		var err error
		switch p.faulty {
		case -1:
			err = r.judgeAll(p, side, &d)
		case side:
			err = r.judgeFaulty(p, side, &d)
		default:
			err = r.judgeCut(p, side, &d)
		}
		if err != nil {
			return fmt.Errorf("requests of side %d: %w", side, err)
		}
	}
	return r.judgeEnds(p)
}

// judgeAll checks that all requests of side were executed.
func (r *rig) judgeAll(p *plan, side int, d *direction) error {
	me, peer := &r.ends[side], &r.ends[1-side]
	if g, o, bad := differs(&me.mem, &d.last().mine, nil, myRegions...); bad {
		return fmt.Errorf("its region %d is wrong at octet %d", g, o)
	}
	if g, o, bad := differs(&peer.mem, &d.last().theirs, nil, theirRegions...); bad {
		return fmt.Errorf("the peer's region %d is wrong at octet %d", g, o)
	}
	var want []work.Completion
	for i := range p.halves[side].requests {
		q := &p.halves[side].requests[i]
		if q.has(work.Signaled) {
			want = append(want, r.success(side, i, q))
		}
		if q.op == work.WRLocalInvalidate && !r.gone(side, work.Completion{Invalidated: me.stags[spare]}) {
			return fmt.Errorf("its region %d can be used although request %d has invalidated it", spare, i)
		}
	}
	if !slices.Equal(me.sent, want) {
		return fmt.Errorf("its completions are not %v", want)
	}
	return r.judgeReceived(p, side, d.receipts, work.Success)
}

// success returns the expected completion of request i of side without a fault.
func (r *rig) success(side, i int, q *request) work.Completion {
	c := work.Completion{ID: uint64(i), Op: q.op.Completes(), QP: r.ends[side].q.Number()}
	if q.answered() {
		c.Length = uint32(q.length())
	}
	return c
}

// judgeReceived checks what side's peer has received. The receipts come first, then a
// receive with status next unless next is Success. All other receives must be flushed,
// in order.
func (r *rig) judgeReceived(p *plan, side int, receipts []receipt, next work.Status) error {
	peer := &r.ends[1-side]
	var want []work.Completion
	for i := range p.halves[1-side].receives {
		c := work.Completion{ID: uint64(i), Op: work.WCRecv, Status: work.Flushed, QP: peer.q.Number()}
		switch {
		case i < len(receipts):
			got := receipts[i]
			c.Status, c.Length, c.Solicited = work.Success, uint32(got.length), got.solicited
			if got.imm != nil {
				c.Op, c.WithImm, c.Imm = work.WCRecvImm, true, *got.imm
			}
			if got.victim != 0 {
				c.Invalidated = peer.stags[got.victim]
			}
		case i == len(receipts) && next != work.Success:
			c.Status = next
		}
		want = append(want, c)
	}
	if !slices.Equal(peer.received, want) {
		return fmt.Errorf("the peer's receives are not %v", want)
	}
	for i := range min(len(receipts), len(peer.received)) {
		if !r.gone(1-side, peer.received[i]) {
			return fmt.Errorf("STag %v can be used although it was invalidated", peer.received[i].Invalidated)
		}
	}
	return nil
}

// judgeFaulty checks that all requests before the last were executed. Reads may be
// missing, because their answers may have come too late.
func (r *rig) judgeFaulty(p *plan, side int, d *direction) error {
	me, peer := &r.ends[side], &r.ends[1-side]
	requests := p.halves[side].requests
	bad := &requests[len(requests)-1]
	result := outcomes[bad.fault]
	flushed, err := r.judgeSent(side, requests, false)
	if err != nil {
		return err
	}
	mask := blank()
	for _, i := range flushed {
		for _, sink := range requests[i].list {
			set(mask.at(sink))
		}
	}
	if g, o, differ := differs(&me.mem, &d.last().mine, mask, myRegions...); differ {
		return fmt.Errorf("its region %d is wrong at octet %d", g, o)
	}
	mask = blank()
	if bad.fault == sendTooLong {
		for _, e := range p.halves[1-side].receives[len(d.receipts)] {
			set(mask.at(e)) // segments that were within the region
		}
	}
	if g, o, differ := differs(&peer.mem, &d.last().theirs, mask, theirRegions...); differ {
		return fmt.Errorf("the peer's region %d is wrong at octet %d", g, o)
	}
	return r.judgeReceived(p, side, d.receipts, result.recv)
}

// judgeSent checks the completions of a side's requests on a connection that a fault
// has ended. Each completion comes at most once and in order, and no required
// completion is missing. The first failed request ends the successes. All later
// requests fail, too, with an error of their own or flushed, even if they have left
// (RFC 5040 §6.2.1). They complete even if they are unsignaled. judgeSent returns the
// flushed Reads.
//
// If cut is true, any request may be the first flushed one, because it may not have
// left. Otherwise only a Read or an atomic operation may be the first, a Send that was
// refused before all of it was sent, or a Local Invalidate that still waited for the end of
// the engine's step.
func (r *rig) judgeSent(side int, requests []request, cut bool) (flushed []int, err error) {
	got, failed := r.ends[side].sent, false
	for i := range requests {
		q := &requests[i]
		want := r.success(side, i, q)
		if want.Status = outcomes[q.fault].status; want.Status != work.Success {
			want.Length = 0
		}
		fails := failed || want.Status != work.Success
		if len(got) == 0 || got[0].ID != uint64(i) {
			if fails || q.has(work.Signaled) {
				return nil, fmt.Errorf("request %d has not completed", i)
			}
			continue
		}
		c := got[0]
		got = got[1:]
		bad := want
		bad.Status, bad.Length = work.Flushed, 0
		switch {
		case c == want && want.Status != work.Success:
			failed = true
		case c == want && q.has(work.Signaled) && !failed:
		case c == bad && want.Status == work.Success && (failed || cut || q.answered() || q.op == work.WRLocalInvalidate || q.fault == sendTooLong):
			failed = true // no later request succeeds
			if q.answered() {
				flushed = append(flushed, i)
			}
		default:
			return nil, fmt.Errorf("completion of request %d is %+v", i, c)
		}
	}
	if len(got) != 0 {
		return nil, fmt.Errorf("completions of nothing: %v", got)
	}
	return flushed, nil
}

// judgeCut checks a side whose connection the other side has ended. The side's requests
// were executed up to some point.
func (r *rig) judgeCut(p *plan, side int, d *direction) error {
	me, peer := &r.ends[side], &r.ends[1-side]
	flushed, err := r.judgeSent(side, p.halves[side].requests, true)
	if err != nil {
		return err
	}
	if len(flushed) == 0 && me.q.Drained() {
		if g, o, differ := differs(&me.mem, &d.last().mine, nil, myRegions...); differ {
			return fmt.Errorf("its region %d is wrong at octet %d", g, o)
		}
	}
	n := 0
	for n < len(peer.received) && peer.received[n].Status == work.Success {
		n++
	}
	if n > len(d.receipts) {
		return fmt.Errorf("%d Sends were delivered, of %d", n, len(d.receipts))
	}
	if !d.somewhere(&peer.mem, n) {
		return fmt.Errorf("the peer's memory is not what any prefix of the requests leaves")
	}
	return r.judgeReceived(p, side, d.receipts[:n], work.Success)
}

// judgeEnds checks how the two QPs have ended.
func (r *rig) judgeEnds(p *plan) error {
	if p.faulty < 0 {
		for side := range r.ends {
			if q := r.ends[side].q; q.State() != rdmap.Idle || q.Cause() != (rdmap.Cause{}) {
				return fmt.Errorf("side %d has not closed in good order", side)
			}
		}
		return nil
	}
	requests := p.halves[p.faulty].requests
	result := outcomes[requests[len(requests)-1].fault]
	for side := range r.ends {
		c := r.ends[side].q.Cause()
		if r.ends[side].q.State() != rdmap.Errored || c.Code != result.code || c.Remote != ((side == p.faulty) != result.local) {
			return fmt.Errorf("side %d should have ended by %v", side, result.code)
		}
	}
	return nil
}

// blank returns a mask with no octet set.
func blank() *memory {
	var m memory
	for i := range m {
		m[i] = make([]byte, lengthOf(i))
	}
	return &m
}

func set(b []byte) {
	for i := range b {
		b[i] = 1
	}
}
