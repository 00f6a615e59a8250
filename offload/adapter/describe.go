package adapter

import (
	"net"
	"net/netip"
)

// Description describes a port at the moment of Describe.
type Description struct {
	Name      string         // name of the interface; "" for the kernel's TCP
	Addresses []netip.Prefix // addresses of the interface
	MTU       int            // MTU for IP packets in octets; 0 for the kernel's TCP
	Path      string         // how the interface is used, or "kernel port"

	// NoZeroCopy says why zero copy was tried and is not used. NoZeroCopy is nil
	// otherwise.
	NoZeroCopy error
}

// Describe returns a Description of each port. With KernelPort it returns one
// Description, which describes the kernel's TCP. The caller must have called Use.
func (a *Adapter) Describe() (list []Description, err error) {
	if a.cfg.KernelPort {
		return []Description{{Path: kernelPath}}, nil
	}
	err = a.space.Do(func() error {
		for _, p := range a.Ports() {
			d, err := p.describe()
			if err != nil {
				return err
			}
			list = append(list, d)
		}
		return nil
	})
	return list, err
}

// describe returns the Description of p. describe must run in the adapter's namespace.
func (p *Port) describe() (Description, error) {
	out := Description{Name: p.name, MTU: p.nic.Link().MTU, Path: p.path(), NoZeroCopy: p.nic.Path().NoZeroCopy}
	ifc, err := net.InterfaceByIndex(p.nic.Link().Index)
	if err != nil {
		return Description{}, err
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return Description{}, err
	}
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			out.Addresses = append(out.Addresses, prefix)
		}
	}
	return out, nil
}
