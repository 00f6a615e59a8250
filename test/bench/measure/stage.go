package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

// stack says whether the kernel or stag's engine runs the TCP of a side.
type stack string

const (
	kernel  stack = "kernel"
	offload stack = "engine"
)

// program names the XDP program on both ends of a pair between two kernels.
type program string

const (
	passAll  program = ""         // a program that passes all packets: they take the same path through the driver as with stag
	steering program = "steering" // stag's program, without a flow
	noXDP    program = "no XDP"   // no program: the fastest setting for the kernel's TCP on this pair
)

// setting describes a stage.
type setting struct {
	stacks   [2]stack // the stack of each side, by pair.Side
	verb     verb     // the verb that the adapters use; plain means a stream without RDMA
	noCRC    bool     // FPDUs have no CRC, for verbs
	long     bool     // FPDUs may be longer than a segment (rdma.ExtLongFPDUs), for verbs
	raw      raw      // kind of frames without a TCP; if raw is set, stacks is ignored
	load              // sizes and numbers of messages, for verbs and for the kernel's streams; the zero value means usual
	program           // the XDP program between two kernels
	mtu      int      // octets
	threaded bool     // NAPI runs in threads
	spin     time.Duration
	progress rdma.Progress
	octets   int          // octets of payload in a raw frame; 0 means as many as fit
	queues   int          // receive and transmit queues of each end; 0 means 1
	flows    int          // largest number of connections of a side; 0 means the default
	router   *pair.Router // a router between the sides; nil means one cable
	cables                // two cables between the sides
	control  string       // congestion control of both stacks; "" means control
}

// cables says how the two sides use two cables between them.
type cables uint8

const (
	oneCable  cables = iota // there is only one cable
	onePort                 // of two cables an adapter has the second one only
	bothPorts               // an adapter has both; the second one is used
	crossed                 // an adapter has both; side A sends over the second one, side B over the first
)

// port returns the interface through which a side sends.
func (s *stage) port(side pair.Side) string {
	if s.cables == oneCable || s.cables == crossed && side == to {
		return s.pair.Ends[side].Name
	}
	return s.pair.Seconds[side].Name
}

// ports returns the interfaces of a side's adapter.
func (s *stage) ports(side pair.Side) []string {
	if s.cables == bothPorts || s.cables == crossed {
		return []string{s.pair.Ends[side].Name, s.pair.Seconds[side].Name}
	}
	return []string{s.port(side)}
}

// host returns the address of a side.
func (s *stage) host(side pair.Side) string {
	if s.cables != oneCable {
		return s.pair.Services[side].String()
	}
	return s.pair.Ends[side].V4.Addr().String()
}

// direct makes the routes of both sides lead through the cables that the setting wants.
func (s *stage) direct() error {
	if s.cables == oneCable {
		return nil
	}
	over := [2]int{1, 1}
	if s.cables == crossed {
		over[to] = 0
	}
	return errors.Join(s.pair.Prefer(from, over[from]), s.pair.Prefer(to, over[to]))
}

// stage is a veth pair with what the setting puts on each side. A side whose TCP stag
// runs has a NIC. For verbs, each side has an adapter instead. Between two kernels the
// setting selects the XDP program.
type stage struct {
	setting
	pair     *pair.Pair
	nics     [2]*nic.NIC
	adapters [2]*rdma.Adapter
	pass     *passer
	programs []*loader.Steering
	redirect *redirector
}

func newStage(s setting) (_ *stage, err error) {
	if s.load == (load{}) {
		s.load = usual
	}
	st := &stage{setting: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	plainOnly := s.raw == notRaw && s.stacks == [2]stack{kernel, kernel}
	st.pair, err = pair.New(pair.Config{MTU: s.mtu, ThreadedNAPI: s.threaded, ChecksumOffload: plainOnly, Queues: s.queues, Router: s.router, Twin: s.cables != oneCable})
	if err != nil {
		return nil, err
	}
	for _, side := range []pair.Side{pair.A, pair.B} {
		if err := st.pair.Do(side, useControl); err != nil {
			return nil, fmt.Errorf("congestion control %s: %w", control, err)
		}
	}
	if err := st.direct(); err != nil {
		return nil, err
	}
	if plainOnly && s.program == steering {
		return st, st.steer()
	}
	if plainOnly && s.program == passAll {
		if st.pass, err = attachPass(st.pair); err != nil {
			return nil, err
		}
	}
	if s.raw != notRaw {
		st.redirect, err = attachRedirect(st.pair)
		return st, err
	}
	if s.verb != plainStream {
		return st, st.openAdapters()
	}
	for side := range st.nics {
		if s.stacks[side] == offload {
			if err := st.open(pair.Side(side)); err != nil {
				return nil, err
			}
		}
	}
	return st, nil
}

// useControl makes control the congestion control of all connections of the current network
// namespace, by its routes. The kernel refuses to make it the namespace's default, unless it
// is also the machine's.
func useControl() error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}
	for _, r := range routes {
		r.Congctl = control
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("change the route to %v: %w", r.Dst, err)
		}
	}
	return nil
}

// steer attaches stag's program to both ends, without flows.
func (s *stage) steer() error {
	for _, side := range []pair.Side{pair.A, pair.B} {
		err := s.pair.Do(side, func() error {
			p, err := loader.Load(loader.Options{Link: s.pair.Ends[side].Name})
			if err == nil {
				s.programs = append(s.programs, p)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) open(side pair.Side) error {
	return s.pair.Do(side, func() (err error) {
		s.nics[side], err = nic.Open(nic.Config{
			Link:   s.pair.Ends[side].Name,
			Engine: engine.Config{Spin: s.spin}, MaxFlows: s.flows,
		})
		return err
	})
}

// openAdapters opens an adapter on each side. The adapter uses its end of the pair, or
// the kernel's TCP.
func (s *stage) openAdapters() error {
	for side := range s.adapters {
		c := rdma.Config{Ports: s.ports(pair.Side(side)), Spin: s.spin, Progress: s.progress, MaxFlows: s.flows, Congestion: s.control}
		if s.stacks[side] == kernel {
			c = rdma.Config{KernelPort: true, Progress: s.progress}
		}
		err := s.pair.Do(pair.Side(side), func() (err error) {
			s.adapters[side], err = rdma.Open(c)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) close() error {
	var errs []error
	for _, n := range s.nics {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	for _, a := range s.adapters {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	if s.pass != nil {
		s.pass.close()
	}
	for _, p := range s.programs {
		errs = append(errs, p.Close())
	}
	if s.redirect != nil {
		s.redirect.close()
	}
	if s.pair != nil {
		errs = append(errs, s.pair.Close())
	}
	return errors.Join(errs...)
}

// connect opens a kernel connection from side A to side B.
func (s *stage) connect(ctx context.Context) (a, b *net.TCPConn, err error) {
	var l net.Listener
	err = s.pair.Do(pair.B, func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // an MPTCP connection cannot be taken over
		if n := s.nics[pair.B]; n != nil {
			lc.Control = n.Control
		}
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(s.host(pair.B), "0"))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	var dialled net.Conn
	err = s.pair.Do(pair.A, func() (err error) {
		var d net.Dialer
		if n := s.nics[pair.A]; n != nil {
			d.Control = n.Control
		}
		dialled, err = d.DialContext(ctx, "tcp", l.Addr().String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	accepted, err := l.Accept()
	if err != nil {
		dialled.Close()
		return nil, nil, err
	}
	if s.control != "" {
		if err := errors.Join(setControl(dialled.(*net.TCPConn), s.control), setControl(accepted.(*net.TCPConn), s.control)); err != nil {
			dialled.Close()
			accepted.Close()
			return nil, nil, err
		}
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn), nil
}

// take moves a side's connection into its engine.
func (s *stage) take(ctx context.Context, side pair.Side, c *net.TCPConn, ulp stream.ULP) (*nic.Flow, error) {
	f, err := s.nics[side].Take(ctx, c, ulp, nic.DefaultOptions)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("side %v: %w", side, err)
	}
	return f, nil
}
