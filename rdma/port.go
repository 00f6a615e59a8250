package rdma

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
)

// kernelPath is what the path of a connection over the kernel's TCP is called.
const kernelPath = "kernel port"

// port is a network interface whose connections are taken over. A nil *port
// is the kernel's.
type port struct {
	name string
	nic  *nic.NIC
}

// announce makes a socket that listens, on whatever port, announce an MSS that
// the frames of all of them hold.
func (a *Adapter) announce(network, _ string, c syscall.RawConn) error {
	if len(a.ports) == 0 {
		return nil // the kernel's
	}
	mss := math.MaxInt
	for _, p := range a.ports {
		mss = min(mss, p.nic.MSS(strings.HasSuffix(network, "6")))
	}
	return handoff.Announce(c, mss)
}

// path says how packets get between the wire and the QPs.
func (p *port) path() string {
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
	queues := 0
	for _, name := range a.cfg.Ports {
		link, err := a.net.LookupLink(name)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		queues += link.RxQueues
	}
	a.inline = a.cfg.chooseProgress(queues) == ProgressInline
	for _, name := range a.cfg.Ports {
		n, err := nic.Open(a.nicConfig(name))
		if err != nil {
			return err
		}
		a.undo.Add(n.Close)
		a.ports = append(a.ports, &port{name, n})
	}
	return nil
}

func (a *Adapter) nicConfig(name string) nic.Config {
	c := &a.cfg
	return nic.Config{
		Link: name, VLAN: c.VLAN, Generic: c.Generic, Queues: c.Queues,
		FrameSize: c.FrameSize, RxFrames: c.RxFrames, TxFrames: c.TxFrames,
		ZeroCopy: c.ZeroCopy, MaxFlows: c.MaxFlows, Partial: c.Partial, Log: c.Log,
		Carrier: func(up bool) {
			t := PortDown
			if up {
				t = PortUp
			}
			a.events.add(Event{Type: t, Port: name})
		},
		Lost:     func(err error) { a.portLost(name, err) },
		Diverted: func(flows []*nic.Flow, why error) { a.diverted(name, flows, why) },
		Engine: engine.Config{
			TCP:  tcp.Config{Congestion: tcp.Control(c.Congestion)},
			Spin: a.engineSpin(), Table: a.table, After: a.board.Deliver,
		},
	}
}

// portFor is the port that an established connection's packets leave through; nil,
// which is the kernel's, with KernelPort. ErrNoPort.
func (a *Adapter) portFor(ctx context.Context, c *net.TCPConn) (*port, error) {
	if a.cfg.KernelPort {
		return nil, nil
	}
	r, err := handoff.RoutingOf(c)
	if err != nil {
		return nil, err
	}
	local, remote := a.ends(c)
	return a.portTo(ctx, r, local.Addr(), remote.Addr())
}

// portLost tells that a port is of no use any more. When it was the last one,
// nobody can connect any more, and Accept says so.
func (a *Adapter) portLost(name string, err error) {
	a.events.add(Event{Type: PortLost, Port: name, Err: err})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost++; a.lost < len(a.cfg.Ports) {
		return
	}
	for c := range a.loose {
		if l, ok := c.(*Listener); ok {
			l.die(err)
		}
	}
}

// portTo is the port that packets of a socket that is routed as by says, from
// local, which may be the zero Addr, to remote leave through.
func (a *Adapter) portTo(ctx context.Context, by handoff.Routing, local, remote netip.Addr) (*port, error) {
	q := loader.Query{Dst: remote, Src: local, Mark: by.Mark, Device: by.Device}
	r, err := a.ways.Get(ctx, q, func() (loader.Route, error) { return a.net.Resolve(ctx, q) })
	if errors.Is(err, loader.ErrLocal) {
		return nil, fmt.Errorf("%w: %v is on this host, and connections within it pass no port (%s): open an adapter with KernelPort for them",
			ErrNoPort, remote, strings.Join(a.cfg.Ports, ", "))
	}
	if err != nil {
		return nil, a.downInstead(err)
	}
	for _, p := range a.ports {
		if p.nic.Link().Index == r.OutIf {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: packets to %v leave through %s, and the ports are %s: open that one too, or an adapter with KernelPort",
		ErrNoPort, remote, a.linkName(r.OutIf, fmt.Sprint("interface ", r.OutIf)), strings.Join(a.cfg.Ports, ", "))
}

// downInstead is that a port is down, where there is no route, or else err.
func (a *Adapter) downInstead(err error) error {
	if !errors.Is(err, loader.ErrNoRoute) {
		return err
	}
	for _, p := range a.ports {
		if down := a.net.CheckUp(p.name); errors.Is(down, loader.ErrLinkDown) {
			return down
		}
	}
	return err
}

// linkName is the name of an interface of the adapter's namespace, or otherwise
// where it is gone.
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

// socket is an established connection that is still the kernel's, with what
// is needed to give it to a ULP.
type socket struct {
	*net.TCPConn
	a *Adapter
	p *port
}

// takeOver says how a connection is taken over.
type takeOver struct {
	kind     bpf.Kind // what the flow entry says about the ULP
	accepted bool     // a listener has accepted the connection
	words    []byte   // last words to write to the socket, such as a responder's Reply
}

// takeOver makes the ULP the owner of the connection. The socket is closed either
// way. On error the connection is lost. The caller wakes the line for what the ULP
// has to send already.
//
// On a port the last words are written only when the peer's segments are kept for
// the engine: an initiator may send all it has and close before we have taken
// over, and a connection that is half closed cannot be.
func (s *socket) takeOver(ctx context.Context, ulp stream.ULP, how takeOver) (l *line, err error) {
	defer s.Close()
	say := func() error { return s.say(ctx, how.words) }
	if s.p == nil {
		l, err = s.runKernelPort(ulp, say)
	} else {
		l, err = s.takeFlow(ctx, ulp, how, say)
	}
	if errors.Is(err, handoff.ErrNotEstablished) || errors.Is(err, syscall.ENOTCONN) {
		return nil, fmt.Errorf("the peer ended the connection before it was taken over: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if !s.a.inline {
		l.runner = nil
	}
	return l, nil
}

func (s *socket) say(ctx context.Context, words []byte) error {
	if len(words) == 0 {
		return nil
	}
	defer bound(ctx, s)()
	if _, err := s.Write(words); err != nil {
		return fmt.Errorf("send the MPA Reply: %w", err)
	}
	return nil
}

// takeFlow takes the connection over from the kernel.
func (s *socket) takeFlow(ctx context.Context, ulp stream.ULP, how takeOver, say func() error) (*line, error) {
	f, err := s.p.nic.Take(ctx, s.TCPConn, ulp, nic.Options{Kind: how.kind, Queue: nic.AnyQueue, Parked: say, Accepted: how.accepted})
	if err != nil {
		return nil, err
	}
	return &line{carrier: f, runner: f.Engine(), port: s.p, flow: f.ID()}, nil
}

// runKernelPort leaves the connection to the kernel's TCP.
func (s *socket) runKernelPort(ulp stream.ULP, say func() error) (*line, error) {
	if err := say(); err != nil {
		return nil, err
	}
	k, err := kernelport.New(s.TCPConn, ulp, kernelport.Config{Table: s.a.table, After: s.a.board.Deliver})
	if err != nil {
		return nil, err
	}
	s.a.running.Go(func() {
		// The ULP is told what ends the connection. It has its own descriptor: ours is
		// closed by now, or soon.
		_ = k.Run(context.Background())
	})
	return &line{carrier: k, runner: k}, nil
}
