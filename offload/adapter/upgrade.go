package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// ErrNotUpgradable is returned by Offer for an adapter that cannot continue in another
// process. The error says why.
var ErrNotUpgradable = errors.New("cannot be upgraded")

// Offering is what Offer needs beside the adapter. The zero value works.
type Offering struct {
	// Objects returns objects of the program for Succession.Objects, such as listening
	// sockets. It is called when no connection runs, and must not change anything. The
	// program still owns the files. nil means none.
	Objects func(clock.Instant) ([]portable.Object, error)

	// Settings of the upgrade. NICs, Freeze, Objects, Thaw and Early are not used.
	Offer upgrade.Offer
}

// Offer hands every connection of the adapter over to the process at the other end of c,
// which must call Succeed, and closes c. The peers notice nothing but a pause. The upper
// layer of each connection must be a portable.ULP, and each layer of the adapter an Heir.
//
// When Offer returns nil, the other process has everything. The upper layers have got
// portable.ErrUpgraded, new connections cannot be taken over, and the program must call Close,
// which leaves the ports to the other process. Captures end with Close.
//
// After an error everything continues here. The error is an *upgrade.Refusal if the other
// process has refused, and ErrNotUpgradable if it was not asked.
func (a *Adapter) Offer(ctx context.Context, c *net.UnixConn, what Offering) (upgrade.Result, error) {
	ctx, stop := a.While(ctx)
	defer stop()
	heirs, err := a.heirs()
	if err != nil {
		c.Close()
		return upgrade.Result{}, err
	}
	a.portsMu.Lock()
	defer a.portsMu.Unlock()
	o := what.Offer
	for _, p := range a.Ports() {
		if !p.lost.Load() {
			o.NICs = append(o.NICs, p.nic)
		}
	}
	o.Log = a.log
	o.Freeze = func(ctx context.Context) error { return freezeAll(ctx, heirs) }
	o.Thaw = func() { thawAll(heirs) }
	o.Early = a.earlyObjects
	o.Objects = func(now clock.Instant) ([]portable.Object, error) { return a.exportAll(now, heirs, what.Objects) }
	defer a.closeLent()
	r, err := o.Run(ctx, c)
	if err != nil {
		return r, err
	}
	for _, h := range heirs {
		h.Left()
	}
	if a.heap.File() != nil {
		a.arrays.Leave()
	}
	a.log.Info("connections handed over", "pid", r.PID, "flows", r.Flows, "lost", len(r.Lost), "frozen", r.Frozen)
	return r, nil
}

// heirs returns the layers. It fails with ErrNotUpgradable.
func (a *Adapter) heirs() (list []Heir, err error) {
	switch {
	case a.cfg.KernelPort:
		return nil, fmt.Errorf("%w, because the kernel's TCP runs its connections", ErrNotUpgradable)
	case a.cfg.MemoryGroup != "":
		return nil, fmt.Errorf("%w, because it shares memory with other processes (MemoryGroup %s)", ErrNotUpgradable, a.cfg.MemoryGroup)
	}
	for _, l := range a.layers {
		h, ok := l.(Heir)
		if !ok {
			return nil, fmt.Errorf("%w, because %s", ErrNotUpgradable, whyStays(l))
		}
		list = append(list, h)
	}
	return list, nil
}

// whyStays returns why a layer that is no Heir cannot continue in another process.
func whyStays(l Layer) string {
	if s, ok := l.(interface{ StaysBecause() string }); ok {
		return s.StaysBecause()
	}
	return fmt.Sprintf("the objects of its upper layer (%T) belong to the process", l)
}

func freezeAll(ctx context.Context, heirs []Heir) error {
	for i, h := range heirs {
		if err := h.Freeze(ctx); err != nil {
			thawAll(heirs[:i])
			return err
		}
	}
	return nil
}

func thawAll(heirs []Heir) {
	for _, h := range heirs {
		h.Thaw()
	}
}

// exportAll returns the contents of the adapter's memory, the objects of the layers, in
// their order, and those of the program.
func (a *Adapter) exportAll(now clock.Instant, heirs []Heir, program func(clock.Instant) ([]portable.Object, error)) (list []portable.Object, err error) {
	for _, h := range heirs {
		o, err := h.ExportLayer(now)
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	memory, ok, err := a.exportMemory()
	if err != nil {
		return nil, err
	}
	if ok {
		list = append([]portable.Object{memory}, list...)
	}
	if program == nil {
		return list, nil
	}
	more, err := program(now)
	return append(list, more...), err
}

// Succession says how the program continues upper layers that belong to no Heir, and its own
// objects. The zero value knows none.
type Succession struct {
	// ImportULP makes the upper layer of a connection. id is the connection's flow id in the
	// old process. nil means that any kind is unknown.
	ImportULP func(id engine.FlowID, o portable.Object) (stream.ULP, error)
	// Installed is called when an engine runs a connection of ImportULP.
	Installed func(u stream.ULP, c *Conn)
	// Objects gets the objects of Offering.Objects, and owns their files. nil means that any
	// object is refused.
	Objects func([]portable.Object) error

	// At is upgrade.Successor.At.
	At func(step string)
}

// Succeed opens an adapter that continues the connections of the process at the other end of c,
// which has called Offer, and closes c. The adapter must have the ports and the kinds of layers
// that the other one has. Everything else in cfg may differ.
//
// lost has an error for each connection that could not be continued. If Succeed fails, nothing
// is left here, and the other process continues everything.
func Succeed(ctx context.Context, c *net.UnixConn, cfg Config, how Succession, layers ...Layer) (a *Adapter, lost []error, err error) {
	if a, err = newAdapter(cfg, layers); err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("open adapter: %w", err)
	}
	heirs, err := a.heirs()
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("open adapter: %w", err)
	}
	s, err := upgrade.Begin(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	i := &inheriting{adapter: a, heirs: heirs, how: how, of: map[*upgrade.Flow]Heir{}}
	s.Log, s.At, s.ImportObjects, s.ImportULP = a.log, how.At, i.objects, i.ulp
	a.from = s
	if err = a.open(); err == nil {
		err = s.Commit()
	}
	if err != nil {
		for _, h := range i.imported {
			h.Dropped()
		}
		err = errors.Join(err, a.undo.Run())
		s.Refuse(err)
		return nil, nil, fmt.Errorf("succeed pid %d: %w", s.PID(), err)
	}
	return a, i.install(ctx, s), nil
}

// inheriting is a Succeed in progress.
type inheriting struct {
	adapter  *Adapter
	heirs    []Heir
	imported []Heir // those that have called ImportLayer
	how      Succession
	of       map[*upgrade.Flow]Heir
}

func (i *inheriting) objects(list []portable.Object, at clock.Instant) error {
	if len(list) != 0 && list[0].Kind == memoryKind {
		if err := i.adapter.importMemory(list[0]); err != nil {
			return err
		}
		list = list[1:]
	}
	if len(list) < len(i.heirs) {
		return fmt.Errorf("the old process has %d layers, and this one has %d", len(list), len(i.heirs))
	}
	for n, h := range i.heirs {
		i.imported = append(i.imported, h)
		if err := h.ImportLayer(i.adapter, at, list[n]); err != nil {
			return err
		}
	}
	rest := list[len(i.heirs):]
	switch {
	case i.how.Objects != nil:
		return i.how.Objects(rest)
	case len(rest) != 0:
		return fmt.Errorf("%w: %s", portable.ErrKind, rest[0].Kind)
	}
	return nil
}

func (i *inheriting) ulp(f *upgrade.Flow) (u stream.ULP, err error) {
	for _, h := range i.heirs {
		if u, err = h.ImportULP(f.At, f.Departure.ID, *f.Object); !errors.Is(err, portable.ErrKind) {
			i.of[f] = h
			return u, err
		}
	}
	if i.how.ImportULP == nil {
		return nil, fmt.Errorf("%w: %s", portable.ErrKind, f.Object.Kind)
	}
	return i.how.ImportULP(f.Departure.ID, *f.Object)
}

// install makes the engines run the connections.
func (i *inheriting) install(ctx context.Context, s *upgrade.Successor) (lost []error) {
	a := i.adapter
	var nics []*nic.NIC
	for _, p := range a.Ports() {
		nics = append(nics, p.nic)
	}
	a.table.Continue()
	if a.inheritsTable() {
		if err := a.arrays.Sign(); err != nil {
			a.log.Error("the table's claim is not this process's", "err", err)
		}
	}
	running, lost := s.Install(ctx, nics, i.moved, i.installed)
	for _, h := range i.heirs {
		h.Opened()
	}
	a.from = nil
	a.watchGroups()
	a.log.Info("connections taken over from another process", "pid", s.PID(), "flows", running, "lost", len(lost))
	return lost
}

func (i *inheriting) moved(f *upgrade.Flow) func() {
	if m, ok := i.of[f].(movable); ok && i.adapter.inline {
		return m.Moved(f.Departure.ID)
	}
	return nil
}

func (i *inheriting) installed(f *upgrade.Flow, got *nic.Flow) {
	if f.Object == nil {
		return // TIME-WAIT
	}
	c := &Conn{carrier: got, adapter: i.adapter, flow: got, inline: i.adapter.inline}
	if h := i.of[f]; h != nil {
		h.Installed(f.Departure.ID, c)
	} else if i.how.Installed != nil {
		i.how.Installed(f.Parted.ULP, c)
	}
}
