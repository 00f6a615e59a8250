package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
)

func probeUp(l loader.Link) Probe {
	const name = "link"
	switch {
	case !l.Up:
		return bad(name, fmt.Sprintf("ip link set %s up", l.Name), "%s is down", l.Name)
	case !l.Running:
		return bad(name, "connect the cable, or set the other end up", "%s is up and has no carrier", l.Name)
	}
	return ok(name, "%s is up", describe(l))
}

// probeAddress checks for an address that is not link-local. Connections need such an
// address.
func (v *view) probeAddress(l loader.Link) Probe {
	const name = "address"
	link, err := v.nl.LinkByIndex(l.Index)
	if err != nil {
		return unknown(name, "look at "+l.Name+" again", "%v", err)
	}
	all, err := v.nl.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return unknown(name, "look at "+l.Name+" again", "%v", err)
	}
	var routed []string
	for _, a := range all {
		if !a.IP.IsLinkLocalUnicast() {
			routed = append(routed, a.IPNet.String())
		}
	}
	if len(routed) == 0 {
		return hint(name, fmt.Sprintf("ip addr add ADDRESS/PREFIX dev %s", l.Name), "%s has none but link-local ones: no connection leads over it", l.Name)
	}
	return ok(name, "%s", strings.Join(routed, ", "))
}

// probeMember checks that the interface has no master except a VRF or a bond. Routes lead
// over another master, but stag takes over only connections that leave through the
// interface itself.
func (v *view) probeMember(l loader.Link) Probe {
	const name = "master"
	link, err := v.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return unknown(name, "look at "+l.Port+" again", "%v", err)
	}
	index := link.Attrs().MasterIndex
	if index == 0 {
		return ok(name, "none")
	}
	master, err := v.nl.LinkByIndex(index)
	if err != nil {
		return unknown(name, "look at "+l.Port+" again", "%s belongs to interface %d, which cannot be looked at: %v", l.Port, index, err)
	}
	if master.Type() == "vrf" {
		return ok(name, "%s, a VRF: routes are looked up there", master.Attrs().Name)
	}
	if l.Bond != "" {
		return v.probeBond(l)
	}
	return bad(name, fmt.Sprintf("ip link set %s nomaster, and give it an address of its own", l.Port),
		"%s belongs to %s, a %s, over which the routes lead: its connections cannot be taken over", l.Port, master.Attrs().Name, master.Type())
}

// probeBond checks the bond of a member.
func (v *view) probeBond(l loader.Link) Probe {
	const name = "master"
	switch _, err := v.net.Ports(l.Bond); {
	case errors.Is(err, loader.ErrForeignProgram):
		return bad(name, fmt.Sprintf("ip link set %s xdp off", l.Bond), "%v", err)
	case err != nil:
		return bad(name, fmt.Sprintf("ip link set %s type bond mode active-backup", l.Bond), "%v", err)
	}
	return ok(name, "%s, a bond: name %s as the interface of a program", l.Bond, l.Bond)
}

// sysInfiniband is the directory in which the kernel lists RDMA devices.
const sysInfiniband = "/sys/class/infiniband"

// probeRDMA looks for another RDMA device on the interface, such as siw or rxe.
func probeRDMA(l loader.Link) Probe {
	const name = "other RDMA devices"
	files, _ := filepath.Glob(sysInfiniband + "/*/ports/*/gid_attrs/ndevs/0")
	var found []string
	for _, file := range files {
		on, err := os.ReadFile(file)
		if errors.Is(err, os.ErrPermission) {
			return unknown(name, "run as root to see it", "cannot be told: %v", err)
		}
		if err == nil && strings.TrimSpace(string(on)) == l.Port {
			found = append(found, strings.Split(file, "/")[4])
		}
	}
	if len(found) > 0 {
		return hint(name, "rdma link show; rdma link delete NAME, if stag is to be the only one",
			"%s, on %s, too: connections of theirs stay the kernel's", strings.Join(found, ", "), l.Port)
	}
	return ok(name, "none on %s", l.Port)
}

func describe(l loader.Link) string {
	s := l.Name
	if l.VLAN != 0 {
		s += fmt.Sprintf(" (VLAN %d of %s)", l.VLAN, l.Port)
	}
	if l.Driver != "" {
		s += ", driver " + l.Driver
	}
	return s
}

// probeHook checks that the hook is free or has stag's program. It also returns the
// state of the hook.
func (v *view) probeHook(l loader.Link) (p Probe, xdp netlink.LinkXdp) {
	const name = "XDP hook"
	port, err := v.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return unknown(name, "look at "+l.Port+" again", "look interface %s up: %v", l.Port, err), xdp
	}
	if port.Attrs().Xdp != nil {
		xdp = *port.Attrs().Xdp
	}
	if !xdp.Attached {
		return ok(name, "free"), xdp
	}
	program, err := loader.ProgramName(ebpf.ProgramID(xdp.ProgId))
	if err != nil {
		// The claims can still be read.
		if owner, found := claimed(l); found {
			return inUse(name, owner, "stag's, by the claims on %s: program id %d", l.Port, xdp.ProgId), xdp
		}
		return unknown(name, "run as root to see whether it is stag's",
			"a program is on it, id %d, and whose cannot be told: %v", xdp.ProgId, err).wants(capSysAdmin), xdp
	}
	if program != bpf.Program {
		return bad(name, fmt.Sprintf("ip link set %s xdp off, or end the process that holds its link: bpftool link", l.Port),
			"another program is on it, id %d%s", xdp.ProgId, called(program)), xdp
	}
	if owner, found := loader.PortOwner(l); found {
		return inUse(name, owner, "stag is on it, program id %d", xdp.ProgId), xdp
	}
	return ok(name, "stag is on it, program id %d", xdp.ProgId), xdp
}

// inUse returns the row for an interface that another process uses.
func inUse(name string, owner loader.Owner, format string, args ...any) Probe {
	return bad(name, fmt.Sprintf("end %s first, or use another interface: one belongs to one process at a time", owner),
		"in use by %s: %s", owner, fmt.Sprintf(format, args...))
}

// claimed returns the process that has claimed the hook or a queue of l's port.
func claimed(l loader.Link) (owner loader.Owner, found bool) {
	if owner, found = loader.HookOwner(l); found {
		return owner, true
	}
	return loader.PortOwner(l)
}

// probeDriver checks that the driver accepts a program in native mode. It attaches a
// program for a moment, unless a program is attached already or generic is true.
func (v *view) probeDriver(l loader.Link, there netlink.LinkXdp, generic bool) Probe {
	const name = "driver mode"
	if generic {
		return v.probeGeneric(name, l)
	}
	if there.Attached {
		if there.AttachMode == nl.XDP_ATTACHED_SKB {
			return unknown(name, fmt.Sprintf("stag unload %s, or end the process that holds the program, and ask again", l.Port),
				"not tried: what is on the hook is attached in generic mode, and was left alone")
		}
		return ok(name, "native: what is on the hook is")
	}
	// A load holds this claim. Without the claim, a load could find this probe's
	// program on the hook.
	claim, owner, err := loader.ClaimHook(l)
	if err != nil {
		return unknown(name, "run as root", "not tried: %v", err)
	}
	if claim == nil {
		return unknown(name, "ask again when it has loaded", "not tried: %s is loading just now", owner)
	}
	defer claim.Close()
	if err := tryNative(l); err != nil {
		return v.noDriver(name, l, err)
	}
	return ok(name, "native")
}

// probeGeneric checks that the offloads suit generic mode, which every driver supports.
func (v *view) probeGeneric(name string, l loader.Link) Probe {
	if err := v.net.CheckOffloads(l, true); err != nil {
		return bad(name, fmt.Sprintf("ethtool -K %s gro off lro off", l.Port), "generic, as asked for, but receive offload would join segments to up to 64 KiB")
	}
	const found = "generic, as asked for: slower than native"
	if l.Facts().Pair {
		return hint(name, "ethtool -K PEER tso off gso off, on the other end, which sends segments of up to 64 KiB otherwise", found)
	}
	return ok(name, found)
}

// noDriver returns the row for a driver that refuses even a program that does nothing.
func (v *view) noDriver(name string, l loader.Link, err error) Probe {
	why := v.net.ExplainAttach(l, err)
	switch {
	case errors.Is(why, loader.ErrNoNative):
		return bad(name, "stag load --generic "+l.Port+": slow, but it works", "the driver of %s%s has no native XDP", l.Port, called(l.Driver))
	case errors.Is(why, loader.ErrChannels):
		return bad(name, fmt.Sprintf("ethtool -L %s rx N, with N the peer's number of tx queues", l.Port), "%v", why)
	case errors.Is(why, loader.ErrMTU):
		return bad(name, fmt.Sprintf("ip link set %s mtu %d, at both ends", l.Port, l.NativeMTU()), "%v", why)
	case errors.Is(why, loader.ErrPermission):
		return bad(name, "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON", "%v", why).wants(loadCaps...)
	}
	return bad(name, "see the driver's documentation on XDP, or stag load --generic "+l.Port, "%v", why)
}

// tryNative attaches a program that passes all packets, and detaches it.
func tryNative(l loader.Link) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "stag_probe", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Flags:        unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.PortIndex, Flags: link.XDPDriverMode})
	if err != nil {
		return err
	}
	return hook.Close()
}

const xdpPass = 2 // XDP_PASS

// called formats a name for a message. It returns "" if name is "".
func called(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" called %q", name)
}
