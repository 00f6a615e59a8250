package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/rdma"
)

// stage has two hosts, each with an adapter. B listens for connections.
type stage struct {
	why      string     // the reason why the stage uses the kernel's TCP on loopback; "" if it does not
	pair     *pair.Pair // the pair of namespaces; nil on loopback
	adapters [2]*rdma.Adapter
	listener *rdma.Listener
}

func (s *stage) offloaded() bool { return s.why == "" }

// stage makes the two hosts. The caller must close them.
func (o Options) stage(ctx context.Context) (*stage, error) {
	s := o.bare()
	if err := s.build(ctx, o); err != nil {
		return nil, and(err, s.close())
	}
	return s, nil
}

// bare returns a stage without hosts, which knows how its hosts will be joined.
func (o Options) bare() *stage {
	s := &stage{}
	if o.KernelPort {
		s.why = "as asked for"
	} else if lacks := missingRights(); lacks != nil {
		s.why = lacks.Error()
	} else if o.For == rdma.ForThroughput {
		s.why = "the driver veth has no zero copy, so for throughput the kernel's TCP is better"
	}
	return s
}

// hosts makes the two adapters. It returns the address at which B listens.
func (s *stage) hosts(o Options) (host string, err error) {
	if s.offloaded() {
		return s.joinHosts(o)
	}
	if o.Carrier == rdma.CarrierAFXDP {
		return "", fmt.Errorf("AF_XDP is asked for by name: %s; without it there is the kernel's TCP (--carrier kernel)", s.why)
	}
	return s.loopback(o)
}

func (s *stage) build(ctx context.Context, o Options) error {
	host, err := s.hosts(o)
	if err != nil {
		return err
	}
	s.listener, err = s.adapters[pair.B].Listen(ctx, net.JoinHostPort(host, "0"), rdma.ListenConfig{})
	return err
}

// loopback makes two adapters over the kernel's TCP. It returns the address at which B
// listens.
func (s *stage) loopback(o Options) (host string, err error) {
	if _, err = fmt.Fprintf(o.Out, "Kernel port on loopback, nothing is offloaded: %s.\n", s.why); err != nil {
		return "", err
	}
	for side := range s.adapters {
		if s.adapters[side], err = rdma.Open(rdma.Config{KernelPort: true, RegionHeap: o.heap(), Log: o.log(pair.Side(side))}); err != nil {
			return "", err
		}
	}
	if o.V6 {
		return "::1", nil
	}
	return "127.0.0.1", nil
}

// log returns the logger for the adapter of a side.
func (o Options) log(side pair.Side) *slog.Logger {
	if o.Log == nil {
		return nil
	}
	return o.Log.With("side", side.String())
}

// newPair makes the pair. If possible, NAPI runs in kernel threads, so that two
// processors work on one direction. For that the process must have the right to write
// to sysfs, and the mode must not be generic: with NAPI in threads the kernel joins
// segments, which generic mode does not accept.
func newPair(o Options) (p *pair.Pair, napi string, err error) {
	if !o.Generic {
		p, err = pair.New(pair.Config{MTU: o.MTU, Twin: o.twin, ThreadedNAPI: true})
		if !errors.Is(err, os.ErrPermission) {
			return p, "in threads", err
		}
	}
	p, err = pair.New(pair.Config{MTU: o.MTU, Twin: o.twin})
	return p, "inline", err
}

// joinHosts makes two namespaces with a veth pair or two between them, and an adapter at
// each end. It returns the address at which B listens.
func (s *stage) joinHosts(o Options) (host string, err error) {
	var napi string
	if s.pair, napi, err = newPair(o); err != nil {
		return "", err
	}
	for side := range s.adapters {
		err = s.pair.Do(pair.Side(side), func() (err error) {
			s.adapters[side], err = rdma.Open(rdma.Config{
				Ports: s.ports(pair.Side(side)), Generic: o.Generic, RegionHeap: o.heap(), Log: o.log(pair.Side(side)),
			})
			return err
		})
		switch {
		case errors.Is(err, loader.ErrMTU):
			return "", fmt.Errorf("choose a smaller --mtu: %w", err)
		case err != nil:
			return "", fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	cables := fmt.Sprintf("%s and %s", s.pair.Ends[pair.A].Name, s.pair.Ends[pair.B].Name)
	if o.twin {
		cables += fmt.Sprintf(", and %s and %s", s.pair.Seconds[pair.A].Name, s.pair.Seconds[pair.B].Name)
	}
	if _, err = fmt.Fprintf(o.Out, "Two namespaces, joined by veth: %s, MTU %d, NAPI %s.\n", cables, o.MTU, napi); err != nil {
		return "", err
	}
	switch end := &s.pair.Ends[pair.B]; {
	case o.twin:
		return s.pair.Services[pair.B].String(), nil
	case o.V6:
		return end.V6.Addr().String(), nil
	default:
		return end.V4.Addr().String(), nil
	}
}

// ports returns the names of a side's interfaces, the preferred one first.
func (s *stage) ports(side pair.Side) []string {
	names := []string{s.pair.Ends[side].Name}
	if second := s.pair.Seconds[side].Name; second != "" {
		names = append(names, second)
	}
	return names
}

// describe returns the path and the address of each side.
func (s *stage) describe() (sides [2]Side, err error) {
	for i, a := range s.adapters {
		at, err := a.Attributes()
		if err != nil {
			return sides, fmt.Errorf("side %v: %w", pair.Side(i), err)
		}
		port := at.Ports[0]
		sides[i].Path = port.Path
		if port.NoZeroCopy != nil {
			sides[i].NoZeroCopy = port.NoZeroCopy.Error()
		}
		sides[i].Address = s.listener.Addr().Addr().String()
		if s.pair != nil {
			end := &s.pair.Ends[i]
			sides[i].Address = end.V4.Addr().String()
			if s.listener.Addr().Addr().Is6() {
				sides[i].Address = end.V6.Addr().String()
			}
		}
	}
	return sides, nil
}

// connect connects a QP of A with a QP of B. Each side gets the private data of the
// other.
func (s *stage) connect(ctx context.Context, a, b *rdma.QP, saysA, saysB []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	accepted := make(chan error, 1)
	go func() {
		r, err := s.listener.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b, rdma.ConnParams{PrivateData: saysB, Extensions: rdma.ExtRFC7306})
		}
		accepted <- err
	}()
	err := a.Dial(ctx, s.listener.Addr().String(), rdma.ConnParams{PrivateData: saysA, Extensions: rdma.ExtRFC7306})
	if err != nil {
		cancel() // ends the accept, because the connection has failed
		<-accepted
		return fmt.Errorf("side A: %w", err)
	}
	if err := <-accepted; err != nil {
		return fmt.Errorf("side B: %w", err)
	}
	return nil
}

func (s *stage) close() error {
	var errs []error
	for _, a := range s.adapters {
		if a != nil {
			errs = append(errs, a.Close())
		}
	}
	if s.pair != nil {
		errs = append(errs, s.pair.Close())
	}
	return errors.Join(errs...)
}
