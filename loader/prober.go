package loader

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/wire"
)

// Prober asks hosts on the link of one interface whether they are there, by ARP or by
// Neighbour Solicitation, and hears their answers. It uses packet sockets, so that it
// sees the answers to the kernel's own questions too, and works on an interface without
// an address. Ask is safe for concurrent use.
type Prober struct {
	link    Link
	mac     wire.MAC
	mu      sync.Mutex // keeps Ask from a closed socket
	send    packets
	closed  bool
	sockets []*os.File // one for ARP, one for IPv6
	answers chan Answer
	hearing sync.WaitGroup
	ending  sync.Once
	ended   error
}

// Question is a question for one host.
type Question struct {
	Target netip.Addr
	// Source is an address of this host on the interface. The zero Addr asks without an
	// address: by an ARP probe (RFC 5227 §2.1), or from the link-local address that
	// follows from the interface's Ethernet address (RFC 4291, Appendix A). A
	// Solicitation from the unspecified address would end the duplicate address
	// detection of a target that has just begun it.
	//
	// Source must not be an address that is on another interface now: hosts would send
	// to this interface.
	Source netip.Addr
	// MAC is the Ethernet address of the target. If it is nil, all hosts are asked.
	MAC net.HardwareAddr
}

// Answer says that a host has answered a question of this interface.
type Answer struct {
	Target netip.Addr
	MAC    net.HardwareAddr
	At     time.Time
}

// answerRoom is the number of answers that wait to be read. Further answers are dropped:
// the next round asks again.
const answerRoom = 64

// OpenProber opens a Prober in the network namespace of the calling OS thread. It needs
// CAP_NET_RAW. The interface may be down: nothing is answered then.
func OpenProber(link Link) (*Prober, error) {
	mac, err := macOf(link)
	if err != nil {
		return nil, err
	}
	p := &Prober{link: link, mac: mac, answers: make(chan Answer, answerRoom)}
	if p.send, err = openPackets(); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		kind   wire.EtherType
		filter []bpf.Instruction
		parse  func(*Prober, []byte) (Answer, bool)
	}{{wire.TypeARP, arpReplies, (*Prober).arp}, {wire.TypeIPv6, advertisements, (*Prober).advertisement}} {
		f, err := listen(link.Index, s.kind, s.filter)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("hear the answers on %s: %w", link.Name, err)
		}
		p.sockets = append(p.sockets, f)
		p.hearing.Go(func() { p.hear(f, s.parse) })
	}
	return p, nil
}

// Answers returns the channel of the answers. Close closes the channel.
func (p *Prober) Answers() <-chan Answer { return p.answers }

// Close ends the Prober. Further calls return the result of the first.
func (p *Prober) Close() error {
	p.ending.Do(func() {
		p.mu.Lock()
		p.closed = true
		errs := []error{p.send.close()}
		p.mu.Unlock()
		for _, f := range p.sockets {
			errs = append(errs, f.Close())
		}
		p.hearing.Wait()
		close(p.answers)
		p.ended = errors.Join(errs...)
	})
	return p.ended
}

// Ask sends a question. The error is ErrLinkDown if the interface is down, and ErrNoLink
// if it is gone.
func (p *Prober) Ask(q Question) error {
	q.Target, q.Source = q.Target.Unmap().WithZone(""), q.Source.Unmap().WithZone("")
	var frame []byte
	switch {
	case !q.Target.IsValid(), q.Source.IsValid() && q.Source.Is6() != q.Target.Is6():
		return fail(ErrNoNeighbour, nil, "%v cannot be asked from %v: give two addresses of one family", q.Target, q.Source)
	case q.Target.Is4():
		frame = p.arpRequest(q)
	default:
		frame = p.solicitation(q)
	}
	err := p.sendFrame(frame)
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return nil // without a carrier the kernel drops the frame
	case errors.Is(err, net.ErrClosed):
		return err
	case errors.Is(err, unix.ENETDOWN):
		return fail(ErrLinkDown, err, "%s is down: ip link set %s up", p.link.Name, p.link.Name)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fail(ErrNoLink, err, "%s is gone from this network namespace", p.link.Name)
	case err != nil:
		return fmt.Errorf("ask for %v on %s: %w", q.Target, p.link.Name, err)
	}
	return nil
}

func (p *Prober) sendFrame(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	return p.send.send(p.link.Index, frame)
}

// to returns the Ethernet address that a question goes to.
func (q Question) to(all wire.MAC) wire.MAC {
	if len(q.MAC) == 6 {
		return wire.MAC(q.MAC)
	}
	return all
}

func (p *Prober) arpRequest(q Question) []byte {
	f := wire.ARPFields{Op: wire.ARPRequest, SenderMAC: p.mac, TargetIP: q.Target.As4()}
	if q.Source.IsValid() {
		f.SenderIP = q.Source.As4()
	}
	return f.Append(ethernet(q.to(wire.Broadcast), p.mac, wire.TypeARP))
}

func (p *Prober) solicitation(q Question) []byte {
	f := wire.NeighbourFields{Src: p.linkLocal(), Target: q.Target.As16(), MAC: p.mac}
	if q.Source.IsValid() {
		f.Src = q.Source.As16()
	}
	f.Dst = wire.SolicitedNode(f.Target)
	mac := wire.MulticastMAC(f.Dst)
	if len(q.MAC) == 6 {
		f.Dst, mac = f.Target, wire.MAC(q.MAC)
	}
	return f.Append(ethernet(mac, p.mac, wire.TypeIPv6))
}

// linkLocal returns the link-local address with the modified EUI-64 of the Ethernet
// address.
func (p *Prober) linkLocal() [16]byte {
	m := p.mac
	return [16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]}
}

// hear reads answers until the socket is closed or the interface is deleted.
func (p *Prober) hear(f *os.File, parse func(*Prober, []byte) (Answer, bool)) {
	b := make([]byte, 2048)
	for {
		n, err := f.Read(b)
		if errors.Is(err, unix.ENETDOWN) {
			continue // the kernel says once that the interface went down, or that it is gone
		}
		if err != nil {
			return
		}
		a, ok := parse(p, b[:n])
		if !ok {
			continue
		}
		a.At = time.Now()
		select {
		case p.answers <- a:
		default:
		}
	}
}

// arp reads an ARP reply. Only a reply to this interface's address answers a question
// of this interface. A broadcast shows one direction of the link only.
func (p *Prober) arp(b []byte) (Answer, bool) {
	eth, body, ok := wire.ParseEthernet(b)
	if !ok || eth.Dst() != p.mac {
		return Answer{}, false
	}
	r, ok := wire.ParseARP(body)
	if !ok || r.Op() != wire.ARPReply {
		return Answer{}, false
	}
	mac := r.SenderMAC()
	return Answer{Target: netip.AddrFrom4(r.SenderIP()), MAC: mac[:]}, true
}

// advertisement reads a Neighbour Advertisement that answers a Solicitation.
func (p *Prober) advertisement(b []byte) (Answer, bool) {
	eth, body, ok := wire.ParseEthernet(b)
	if !ok || eth.Dst() != p.mac {
		return Answer{}, false
	}
	ip, body, why := wire.ParseIPv6(body)
	if why != wire.OK {
		return Answer{}, false
	}
	m, ok := wire.ParseNeighbour(ip, body)
	if !ok || !m.Advertises() || !m.Solicited() {
		return Answer{}, false
	}
	mac, ok := m.MAC()
	if !ok {
		mac = eth.Src() // an answer to a unicast question needs no option (RFC 4861 §4.4)
	}
	return Answer{Target: netip.AddrFrom16(m.Target()), MAC: mac[:]}, true
}
