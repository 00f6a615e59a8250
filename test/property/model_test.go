package property

import (
	"bytes"
	"slices"

	"github.com/stag-rdma/stag/offload/work"
)

// memory holds the contents of a side's regions.
type memory [regions][]byte

func (m *memory) clone() (c memory) {
	for i := range m {
		c[i] = bytes.Clone(m[i])
	}
	return c
}

func (m *memory) at(p place) []byte { return m[p.region][p.off : p.off+p.n] }

// receipt is what a Send must give the receiver.
type receipt struct {
	length    int
	solicited bool
	victim    int     // the invalidated region; 0 means none
	imm       *uint64 // Immediate Data; nil means none
}

// direction is the effect of one side's requests: the memory of both sides after each
// request, and the receipts of the peer. states[0] is the memory before the first
// request.
type direction struct {
	states   []state
	receipts []receipt
}

type state struct {
	mine, theirs memory // only the local regions of mine, and only the other regions of theirs, are valid
	received     int    // number of Sends that have been delivered
}

// model executes the requests of a side one after the other, as if there were no
// network. It stops before a request with a fault.
func model(p *plan, side int, mine, theirs memory) (d direction) {
	now := state{mine: mine.clone(), theirs: theirs.clone()}
	d.states = append(d.states, state{now.mine.clone(), now.theirs.clone(), 0})
	receives := p.halves[1-side].receives
	for i := range p.halves[side].requests {
		r := &p.halves[side].requests[i]
		if r.fault != none {
			break
		}
		payload := r.inline
		if payload == nil && !r.answered() {
			for _, e := range r.list {
				payload = append(payload, now.mine.at(e)...)
			}
		}
		switch {
		case r.op == work.WRLocalInvalidate:
		case r.atomic():
			copy(now.mine.at(r.list[0]), r.perform(now.theirs.at(r.remote)))
		case r.immediate():
			if r.op == work.WRWriteImm {
				copy(now.theirs.at(r.remote), payload)
			}
			d.receipts = append(d.receipts, receipt{solicited: r.has(work.Solicited), imm: &r.imm})
			now.received++
		case r.op == work.WRWrite:
			copy(now.theirs.at(r.remote), payload)
		case r.op == work.WRRead:
			if r.list != nil {
				copy(now.mine.at(r.list[0]), now.theirs.at(r.remote))
			}
		default:
			d.receipts = append(d.receipts, receipt{length: len(payload), solicited: r.has(work.Solicited), victim: r.victim})
			for _, e := range receives[now.received] {
				payload = payload[copy(now.theirs.at(e), payload):]
			}
			now.received++
		}
		d.states = append(d.states, state{now.mine.clone(), now.theirs.clone(), now.received})
	}
	return d
}

// last returns the state after all requests.
func (d *direction) last() *state { return &d.states[len(d.states)-1] }

// differs finds the first wrong octet of the given regions. It ignores octets for which
// mask is set. mask may be nil.
func differs(got, want, mask *memory, list ...int) (region, off int, differ bool) {
	for _, r := range list {
		for i := range got[r] {
			if got[r][i] != want[r][i] && (mask == nil || mask[r][i] == 0) {
				return r, i, true
			}
		}
	}
	return 0, 0, false
}

var myRegions, theirRegions = []int{local, spare}, []int{1, 2, 3, 4}

// somewhere reports whether got is the result of the first requests up to some point.
// At least received Sends must have been delivered. The next request may be executed in
// part.
func (d *direction) somewhere(got *memory, received int) bool {
	return slices.ContainsFunc(d.indices(), func(i int) bool {
		now, next := &d.states[i], &d.states[min(i+1, len(d.states)-1)]
		if next.received < received {
			return false
		}
		for _, r := range theirRegions {
			for k, b := range got[r] {
				if b != now.theirs[r][k] && b != next.theirs[r][k] {
					return false
				}
			}
		}
		return true
	})
}

func (d *direction) indices() (all []int) {
	for i := range d.states {
		all = append(all, i)
	}
	return all
}
