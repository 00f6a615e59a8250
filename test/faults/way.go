package faults

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
)

// place is an interface with its namespace.
type place struct {
	pair.End
	do func(func() error) error
}

func placeOf(p *pair.Pair, side pair.Side) place {
	return place{p.Ends[side], func(f func() error) error { return p.Do(side, f) }}
}

// way is the program on one interface. Packets leave through another interface.
type way struct {
	faultsObjects
	link   link.Link
	routed bool
}

// newWay attaches the program to from. Packets leave through to. If routed is true, the
// kernel in from's namespace forwards them.
func newWay(from, to place, seed uint64, routed bool) (w *way, err error) {
	w = &way{routed: routed}
	if err := loadFaultsObjects(&w.faultsObjects, nil); err != nil {
		return nil, fmt.Errorf("load the program that makes faults: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("a way from %s to %s: %w", from.Name, to.Name, err), w.close())
		}
	}()
	if err := w.Tallies.Put(uint32(0), Tally{State: seed*0x9e3779b97f4a7c15 | 1}); err != nil {
		return w, err
	}
	if err := w.set(Plan{}); err != nil {
		return w, err
	}
	if !routed {
		if err := w.leadTo(to); err != nil {
			return w, err
		}
	}
	return w, w.attach(from)
}

// leadTo sets the interface through which packets leave. The interface's index is valid
// in its own namespace.
func (w *way) leadTo(to place) error {
	return to.do(func() error {
		for i := range uint32(2) {
			if err := w.Ahead.Put(i, uint32(to.Index)); err != nil {
				return err
			}
		}
		return nil
	})
}

// attach attaches the program to from, in native mode. from must not merge frames,
// because the program must see each frame as it arrived.
func (w *way) attach(from place) error {
	return from.do(func() (err error) {
		w.link, err = link.AttachXDP(link.XDPOptions{
			Program: w.StagFaults, Interface: from.Index, Flags: link.XDPDriverMode,
		})
		if err != nil {
			return err
		}
		return loader.SetGRO(from.Name, false)
	})
}

// set replaces the plan.
func (w *way) set(p Plan) error {
	all := planned{Plan: p}
	if w.routed {
		all.Routed = 1
	}
	return w.Plans.Put(uint32(0), all)
}

func (w *way) tally() (t Tally, err error) {
	err = w.Tallies.Lookup(uint32(0), &t)
	return t, err
}

func (w *way) close() error {
	var errs []error
	if w.link != nil {
		errs = append(errs, w.link.Close())
	}
	return errors.Join(append(errs, w.faultsObjects.Close())...)
}
