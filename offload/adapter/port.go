package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/tcp"
)

// kernelPath is the path name of a connection over the kernel's TCP.
const kernelPath = "kernel port"

// Port is a network interface whose connections are taken over. A nil *Port stands for
// the kernel's TCP.
type Port struct {
	name string
	nic  *nic.NIC
	lost atomic.Bool // the port is lost for good
}

// Name returns the name of the interface.
func (p *Port) Name() string { return p.name }

// NIC returns the interface and its engines.
func (p *Port) NIC() *nic.NIC { return p.nic }

// path returns a name for the way of packets between the wire and the ULPs.
func (p *Port) path() string {
	if p == nil {
		return kernelPath
	}
	return p.name + ": " + p.nic.Path().String()
}

// openPorts makes every port ready to take connections over.
func (a *Adapter) openPorts() (err error) {
	if a.cfg.KernelPort {
		a.inline = a.cfg.chooseProgress(0) == ProgressInline
		return nil
	}
	if a.net, err = loader.Open(); err != nil {
		return err
	}
	a.undo.Add(a.net.Close)
	if err := a.repairMoves(); err != nil {
		a.log.Warn("interrupted move of addresses not completed", "err", err)
	}
	queues := 0
	for _, name := range a.cfg.Ports {
		link, err := a.net.LookupLink(name)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		queues += link.RxQueues
	}
	a.inline = a.cfg.chooseProgress(queues) == ProgressInline
	var cfgs []nic.Config
	for _, name := range a.cfg.Ports {
		cfgs = append(cfgs, a.nicConfig(name))
	}
	if a.from != nil {
		if err := a.from.Check(a.cfg.Ports); err != nil {
			return err
		}
		for i := range cfgs {
			cfgs[i].Inherit, cfgs[i].Ready = a.from.Inheritance(cfgs[i].Link), a.from.Ready
		}
	}
	nics, err := nic.OpenAll(cfgs...)
	if err != nil {
		return err
	}
	var ports []*Port
	for i, n := range nics {
		ports = append(ports, &Port{name: a.cfg.Ports[i], nic: n})
	}
	a.ports.Store(&ports)
	a.undo.Add(a.closePorts)
	return nil
}

// expandBonds replaces the names of bonds in the list of ports by those of their members.
func (a *Adapter) expandBonds() error {
	space, err := loader.Open()
	if err != nil {
		return err
	}
	defer space.Close()
	var names []string
	for _, name := range a.cfg.Ports {
		ports, err := space.Ports(name)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		for _, p := range ports {
			if slices.Contains(names, p) {
				return fmt.Errorf("open %s: the port %s is named twice: name the bond or its members", name, p)
			}
			names = append(names, p)
		}
	}
	a.cfg.Ports = names
	return nil
}

// closePorts closes all ports, the last one first.
func (a *Adapter) closePorts() error {
	var errs []error
	for _, p := range slices.Backward(a.Ports()) {
		errs = append(errs, p.nic.Close())
	}
	return errors.Join(errs...)
}

// portNames lists the names of the ports for a message.
func (a *Adapter) portNames() string {
	var names []string
	for _, p := range a.Ports() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

func (a *Adapter) nicConfig(name string) nic.Config {
	c := &a.cfg
	return nic.Config{
		Link: name, VLAN: c.VLAN, Generic: c.Generic, Queues: c.Queues,
		FrameSize: c.FrameSize, RxFrames: c.RxFrames, TxFrames: c.TxFrames,
		ZeroCopy: c.ZeroCopy, MaxFlows: c.MaxFlows, Partial: c.Partial, Log: c.Log,
		Carrier:  func(up bool) { a.carrierChanged(name, up) },
		Flapped:  func() { a.groups.flapped(name) },
		Lost:     func(err error) { a.portLost(name, err) },
		Moved:    a.moved,
		Diverted: func(flows []*nic.Flow, why error) { a.diverted(name, flows, why) },
		Engine: engine.Config{
			TCP:  tcp.Config{Congestion: tcp.Control(c.Congestion)},
			Spin: a.engineSpin(), Table: a.table, After: a.board.Deliver,
		},
	}
}

// portFor returns the port through which an established connection's packets leave. With
// KernelPort it returns nil, which stands for the kernel's TCP. If there is no such
// port, it returns ErrNoPort.
func (a *Adapter) portFor(ctx context.Context, c *net.TCPConn) (*Port, error) {
	if a.cfg.KernelPort {
		return nil, nil
	}
	r, err := handoff.RoutingOf(c)
	if err != nil {
		return nil, err
	}
	local, remote := a.Ends(c)
	return a.portTo(ctx, r, local.Addr(), remote.Addr())
}

// portTo returns the port through which packets from local to remote leave. by holds the
// routing settings of their socket. local may be the zero Addr.
func (a *Adapter) portTo(ctx context.Context, by handoff.Routing, local, remote netip.Addr) (*Port, error) {
	q := loader.Query{Dst: remote, Src: local, Mark: by.Mark, Device: by.Device}
	r, err := a.ways.Get(ctx, q, func() (loader.Route, error) { return a.net.Resolve(ctx, q) })
	if errors.Is(err, loader.ErrLocal) {
		return nil, fmt.Errorf("%w: %v is on this host, and connections within it pass no port (%s): open an adapter with KernelPort for them",
			ErrNoPort, remote, a.portNames())
	}
	if err != nil {
		return nil, a.downInstead(err)
	}
	for _, p := range a.Ports() {
		if p.nic.Link().Index != r.OutIf {
			continue
		}
		if n := p.nic.At(r.OutIf); n != nil {
			return a.portOf(n), nil
		}
		return p, nil
	}
	return nil, fmt.Errorf("%w: packets to %v leave through %s, and the ports are %s: open that one too, or an adapter with KernelPort",
		ErrNoPort, remote, a.linkName(r.OutIf, fmt.Sprint("interface ", r.OutIf)), a.portNames())
}

// downInstead returns err. If err says that there is no route and a port is down,
// downInstead returns an error that names the port.
func (a *Adapter) downInstead(err error) error {
	if !errors.Is(err, loader.ErrNoRoute) {
		return err
	}
	for _, p := range a.Ports() {
		if down := a.net.CheckUp(p.name); errors.Is(down, loader.ErrLinkDown) {
			return down
		}
	}
	return err
}

// portOf returns the port of an interface.
func (a *Adapter) portOf(n *nic.NIC) *Port {
	for _, p := range a.Ports() {
		if p.nic == n {
			return p
		}
	}
	return &Port{name: n.Link().Name, nic: n} // Open has not stored its ports yet
}

// linkName returns the name of an interface of the adapter's namespace. If the interface
// is gone, it returns otherwise.
func (a *Adapter) linkName(index int, otherwise string) (name string) {
	name = otherwise
	a.space.Do(func() error {
		if ifc, err := net.InterfaceByIndex(index); err == nil {
			name = ifc.Name
		}
		return nil
	})
	return name
}
