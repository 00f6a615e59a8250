package loader

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

func probeUp(l Link) Probe {
	const name = "link"
	switch {
	case !l.Up:
		return bad(name, fmt.Sprintf("ip link set %s up", l.Name), "%s is down", l.Name)
	case !l.Running:
		return bad(name, "connect the cable, or set the other end up", "%s is up and has no carrier", l.Name)
	}
	return ok(name, "%s is up", describe(l))
}

func describe(l Link) string {
	s := l.Name
	if l.VLAN != 0 {
		s += fmt.Sprintf(" (VLAN %d of %s)", l.VLAN, l.Port)
	}
	if l.Driver != "" {
		s += ", driver " + l.Driver
	}
	return s
}

// probeHook looks for a program on the hook, and hands on what it found.
func (n *Net) probeHook(l Link) (Probe, netlink.LinkXdp) {
	const name = "XDP hook"
	xdp, err := n.hook(l)
	if err != nil {
		return bad(name, "look at "+l.Port+" again", "%v", err), xdp
	}
	if !xdp.Attached {
		return ok(name, "free"), xdp
	}
	if program := programName(ebpf.ProgramID(xdp.ProgId)); program != bpf.Program {
		return bad(name, fmt.Sprintf("ip link set %s xdp off, or end the process that holds its link: bpftool link", l.Port),
			"another program is on it, id %d%s", xdp.ProgId, called(program)), xdp
	}
	if queue, owner, found := owners(l); found {
		return ok(name, "stag is on it, program id %d; queue %s is in use by %s", xdp.ProgId, queue, owner.name()), xdp
	}
	return ok(name, "stag is on it, program id %d", xdp.ProgId), xdp
}

// probeDriver attaches a program in native mode for a moment, unless one is
// there already or generic mode will do.
func (n *Net) probeDriver(l Link, there netlink.LinkXdp, generic bool) Probe {
	const name = "driver mode"
	if generic {
		return n.probeGeneric(name, l)
	}
	if there.Attached {
		if there.AttachMode == nl.XDP_ATTACHED_SKB {
			return ok(name, "unknown: what is on the hook is attached in generic mode, and was left alone")
		}
		return ok(name, "native: what is on the hook is")
	}
	// Whoever loads has this claim, and must not find the hook in use.
	claim, owner, err := claim(l, hookClaim)
	if err != nil {
		return bad(name, "run as root", "not tried: %v", err)
	}
	if claim == nil {
		return ok(name, "unknown: %s is loading just now", owner.name())
	}
	defer claim.Close()
	if err := tryNative(l); err != nil {
		return n.noDriver(name, l, err)
	}
	return ok(name, "native")
}

// probeGeneric: every driver has generic mode, but not every setting suits it.
func (n *Net) probeGeneric(name string, l Link) Probe {
	if err := n.checkOffloads(l, true); err != nil {
		return bad(name, fmt.Sprintf("ethtool -K %s gro off lro off", l.Port), "generic, as asked for, but receive offload would join segments to up to 64 KiB")
	}
	p := ok(name, "generic, as asked for: slower than native")
	if l.Driver == "veth" {
		p.Fix = "ethtool -K PEER tso off gso off, on the other end, which sends segments of up to 64 KiB otherwise"
	}
	return p
}

// noDriver says what to do when even a program that does nothing is refused.
func (n *Net) noDriver(name string, l Link, err error) Probe {
	why := n.explainAttach(l, err)
	switch {
	case errors.Is(why, ErrNoNative):
		return bad(name, "ask for generic mode: slow, but it works", "%v", why)
	case errors.Is(why, ErrChannels):
		return bad(name, fmt.Sprintf("ethtool -L %s rx N, with N the peer's number of tx queues", l.Port), "%v", why)
	case errors.Is(why, ErrMTU):
		return bad(name, fmt.Sprintf("ip link set %s mtu %d, at both ends", l.Port, largestMTU(l, false)), "%v", why)
	case errors.Is(why, ErrPermission):
		return bad(name, "run as root, or with CAP_BPF and CAP_NET_ADMIN", "%v", why)
	}
	return bad(name, "see the driver's documentation on XDP, or ask for generic mode", "%v", why)
}

// tryNative attaches a program that passes everything on, and detaches it.
func tryNative(l Link) error {
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

// metadata is the drivers known to leave room in front of a packet for the
// steering record (those that prepare their buffers with valid metadata). In
// generic mode the kernel does, for all.
var metadata = map[string]bool{
	"veth": true, "i40e": true, "ice": true, "igb": true, "igc": true, "ixgbe": true,
	"mlx5_core": true, "nfp": true, "virtio_net": true, "bnxt_en": true,
}

// probeMetadata is not a requirement: without records the engine parses.
func probeMetadata(l Link) Probe {
	const name = "metadata"
	if metadata[l.Driver] {
		return ok(name, "driver %s has room for steering records", l.Driver)
	}
	p := ok(name, "not known of driver %q; without it the engine parses each packet", l.Driver)
	p.Fix = "with stag running, compare the counters steered and steered_bare: stag show"
	return p
}

func probeQueues(l Link, engines int) Probe {
	const name = "queues"
	if l.RxQueues == engines {
		return ok(name, "%d to receive with, an engine for each", l.RxQueues)
	}
	return bad(name, setQueues(l, engines), "receive queues %d, engines %d: packets of a queue without an engine would be lost",
		l.RxQueues, engines)
}

func setQueues(l Link, n int) string {
	if l.Driver == "veth" {
		return fmt.Sprintf("ethtool -L %s rx %d, and tx %d on its peer", l.Port, n, n)
	}
	return fmt.Sprintf("ethtool -L %s combined %d", l.Port, n)
}

// probeMTU: a packet must come in one piece, and fit into a chunk.
func probeMTU(l Link, needs Needs) Probe {
	const name = "MTU"
	limit, chunk := largestMTU(l, needs.Generic), needs.Chunk-chunkOverhead
	switch {
	case l.PortMTU > limit:
		return bad(name, fmt.Sprintf("ip link set %s mtu %d, at both ends", l.Port, min(limit, chunk)),
			"%d, and packets of more than %d come in several pieces", l.PortMTU, limit)
	case l.PortMTU > chunk:
		return bad(name, fmt.Sprintf("use chunks of 4096 octets, or ip link set %s mtu %d, at both ends", l.Port, chunk),
			"%d, and a chunk of %d octets holds packets of up to %d", l.PortMTU, needs.Chunk, chunk)
	}
	return ok(name, "%d of at most %d", l.PortMTU, min(limit, chunk))
}

// probeVLANOffload: a card that takes tags off hides them from the program.
func (n *Net) probeVLANOffload(l Link) Probe {
	const name = "VLAN tags"
	flags, err := n.eth.value(l.Port, unix.ETHTOOL_GFLAGS, 0)
	on := err == nil && flags&ethFlagRxVLAN != 0
	switch {
	case on && l.Driver == "veth": // the peer writes tags out before the program runs
		return ok(name, "left in place by veth")
	case on && l.VLAN != 0:
		return bad(name, fmt.Sprintf("ethtool -K %s rxvlan off", l.Port), "%s takes tags off packets before the program sees them", l.Port)
	case on:
		p := ok(name, "taken off by %s, which matters only when VLANs are used", l.Port)
		p.Fix = fmt.Sprintf("ethtool -K %s rxvlan off, to use VLANs", l.Port)
		return p
	}
	return ok(name, "left in place")
}

// probeChecksum: the kernel at the other end of a veth leaves checksums to a
// device that is not there.
func (n *Net) probeChecksum(l Link) Probe {
	const name = "checksums of the veth peer"
	if l.Driver != "veth" {
		return ok(name, "not a veth")
	}
	link, err := n.nl.LinkByIndex(l.PortIndex)
	if err != nil {
		return bad(name, "look at "+l.Port+" again", "%v", err)
	}
	at := link.Attrs()
	peer, err := n.nl.LinkByIndex(at.ParentIndex)
	// A namespace id means that the index is in that namespace.
	if err != nil || at.NetNsID >= 0 {
		p := ok(name, "the peer is in another network namespace and cannot be seen from here")
		p.Fix = fmt.Sprintf("there, on interface %d: ethtool -k PEER shows tx-checksumming, and ethtool -K PEER tx off turns it off", at.ParentIndex)
		return p
	}
	peerName := peer.Attrs().Name
	on, err := n.eth.value(peerName, ethtoolGTxCsum, 0)
	if err != nil {
		return bad(name, "ethtool -K "+peerName+" tx off", "%v", err)
	}
	if on != 0 {
		return bad(name, "ethtool -K "+peerName+" tx off", "%s sends segments with incomplete checksums", peerName)
	}
	return ok(name, "%s computes them", peerName)
}
