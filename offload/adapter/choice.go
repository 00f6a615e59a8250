package adapter

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/choice"
	"github.com/stag-rdma/stag/offload/nic"
)

// Choice returns what carries the adapter's connections, and why.
func (a *Adapter) Choice() choice.Choice { return a.choice }

// chooseCarrier decides whether the adapter uses its ports or the kernel's TCP. The
// adapter's configuration then says so.
func (a *Adapter) chooseCarrier() error {
	c := &a.cfg
	if a.from != nil {
		a.choice = choice.Choice{Carrier: choice.AFXDP, Why: "it continues the connections of another process"}
		return nil
	}
	q := c.request()
	var ports []choice.Port
	if q.Chooses() {
		var err error
		if ports, err = a.lookPorts(); err != nil {
			return err
		}
	} else if len(c.Ports) > 0 {
		ports = make([]choice.Port, len(c.Ports)) // without a choice the facts come from the open ports
	}
	needs, err := c.frames(ports)
	if err != nil {
		return err
	}
	a.choice = q.Choose(choice.LookRights(needs), ports)
	if a.choice.Carrier == choice.Kernel {
		c.KernelPort, c.Ports = true, nil
	}
	return nil
}

// request returns what the configuration asks for.
func (c *Config) request() choice.Request {
	q := choice.Request{Carrier: c.Carrier, Wish: c.For, Generic: c.Generic, Copy: c.ZeroCopy == afxdp.ZeroCopyOff}
	switch {
	case len(c.Groups) > 0:
		q.Only = "groups of ports are asked for, which only AF_XDP has"
	case c.VLAN != 0:
		q.Only = "a VLAN is asked for that the kernel does not know"
	case c.ZeroCopy == afxdp.ZeroCopyRequire:
		q.Only = "zero copy is asked for, which only AF_XDP has"
	}
	return q
}

// frames returns the size of the frames of all queues, in octets.
func (c *Config) frames(ports []choice.Port) (octets uint64, err error) {
	size, err := afxdp.Config{Ifindex: 1, FrameSize: c.FrameSize, RxFrames: c.RxFrames, TxFrames: c.TxFrames}.RegionSize()
	if err != nil {
		return 0, nil // opening the port reports the mistake
	}
	for _, p := range ports {
		octets += uint64(p.Queues) * size
	}
	return octets, nil
}

// lookPorts looks at the interfaces that the configuration names.
func (a *Adapter) lookPorts() (ports []choice.Port, err error) {
	if len(a.cfg.Ports) == 0 {
		return nil, nil
	}
	space, err := loader.Open()
	if err != nil {
		return nil, err
	}
	defer space.Close()
	for _, named := range a.cfg.Ports {
		names, err := space.Ports(named)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", named, err)
		}
		for _, name := range names {
			p, err := choice.LookPort(space, name)
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", name, err)
			}
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// sayChoice completes the choice with what the open ports have shown, and logs it.
func (a *Adapter) sayChoice() {
	if q := a.cfg.request(); a.choice.Carrier == choice.AFXDP && a.from == nil && !q.Chooses() {
		var ports []choice.Port
		for _, p := range a.Ports() {
			ports = append(ports, seen(p.name, p.nic.Path()))
		}
		a.choice = q.Choose(choice.Rights{}, ports)
	}
	a.log.Info("carrier chosen", "carrier", a.choice.Carrier.String(), "why", a.choice.Why)
}

// seen returns the facts that an open port has shown.
func seen(name string, p nic.Path) choice.Port {
	out := choice.Port{Name: name, Driver: p.Driver, Loaded: p.XDP.String(), ZeroCopy: choice.No}
	if p.Memory == afxdp.ModeZeroCopy {
		out.ZeroCopy = choice.Yes
	}
	return out
}

// notHad adds to the error of an Open that AF_XDP was asked for, or chosen, and what
// else there is. Open does not fall back.
func (a *Adapter) notHad(err error) error {
	switch {
	case a.cfg.Carrier == choice.AFXDP:
		return fmt.Errorf("AF_XDP is asked for by name: %w; without it there is the kernel's TCP (CarrierKernel, --carrier kernel)", err)
	case a.choice.Carrier == choice.AFXDP && a.cfg.request().Chooses():
		return fmt.Errorf("AF_XDP was chosen (%s): %w; without it there is the kernel's TCP (CarrierKernel, --carrier kernel)", a.choice.Why, err)
	}
	return err
}

// choiceMistakes checks Carrier and For against the other fields of c.
func (c Config) choiceMistakes() (errs []error) {
	switch {
	case c.Carrier >= choice.Carriers:
		errs = append(errs, fmt.Errorf("a Carrier of %d: choose CarrierAuto, CarrierAFXDP or CarrierKernel", c.Carrier))
	case c.KernelPort && c.Carrier != choice.AsNamed && c.Carrier != choice.Kernel:
		errs = append(errs, fmt.Errorf("KernelPort is set, and Carrier is %v: choose one", c.Carrier))
	case c.Carrier == choice.AFXDP && len(c.Ports) == 0:
		errs = append(errs, errors.New("AF_XDP is asked for and no port: name network interfaces in Ports"))
	case c.Carrier == choice.Kernel && c.request().Only != "":
		errs = append(errs, fmt.Errorf("the kernel's TCP is asked for, and %s: choose one", c.request().Only))
	}
	if c.For >= choice.Wishes {
		errs = append(errs, fmt.Errorf("a For of %d: choose ForLatency or ForThroughput", c.For))
	}
	return errs
}
