package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/cmd/stag/internal/progress"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
)

// beside moves octets from a side to the other over a TCP connection of the kernels, which
// stag does not take over, and pulls the cable and puts it back as during the operation. It
// adds the gaps to r.
func (f *failover) beside(ctx context.Context, r *FailoverOperation, from pair.Side) (err error) {
	f.seed++
	s := &plain{pattern: octets.Pattern(f.seed)}
	if err := s.open(ctx, f.pair, from); err != nil {
		return err
	}
	defer func() { err = and(err, s.close()) }()
	events := f.pulls()
	share := f.share(len(events))
	meter := progress.New(f.Progress, "kernel's TCP", share*uint64(len(events)))
	defer meter.End()
	err = together(ctx, []func(context.Context) error{
		s.until(s.write),
		s.until(func() error { return s.read(meter.Reach) }),
		func(ctx context.Context) error {
			defer s.enough.Store(true)
			for i, h := range events {
				gap, undisturbed, err := f.pullBeside(ctx, h, &s.gaps, share/2)
				if err != nil {
					return err
				}
				r.Events[i].KernelGap, r.KernelGap = &gap, max(r.KernelGap, undisturbed)
			}
			return nil
		},
	})
	r.KernelOctets = s.gaps.Arrived()
	return err
}

// pullBeside causes an event between two halves of a share, and returns the longest gaps
// after it and before it, in seconds.
func (f *failover) pullBeside(ctx context.Context, h happening, g *gaps.Meter, half uint64) (gap, undisturbed float64, err error) {
	if err := g.Until(ctx, g.Arrived()+half); err != nil {
		return 0, 0, err
	}
	undisturbed = g.Cut().Length.Seconds()
	var idle FailoverEvent // the connection of stag follows, too
	if err := f.cause(ctx, h, &idle); err != nil {
		return 0, 0, err
	}
	err = g.Until(ctx, g.Arrived()+half)
	return g.Cut().Length.Seconds(), undisturbed, err
}

// plain is a TCP connection of the kernels that carries a pattern one way.
type plain struct {
	pattern octets.Pattern
	out, in *net.TCPConn
	gaps    gaps.Meter  // measured between reads
	enough  atomic.Bool // write ends
}

// open connects side A to side B, between the addresses that both cables lead to.
func (s *plain) open(ctx context.Context, p *pair.Pair, from pair.Side) error {
	var lis *net.TCPListener
	err := p.Do(pair.B, func() (err error) {
		lis, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Services[pair.B], 0)))
		return err
	})
	if err != nil {
		return err
	}
	defer lis.Close()
	var dialed net.Conn
	err = p.Do(pair.A, func() (err error) {
		dialed, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", lis.Addr().String())
		return err
	})
	if err != nil {
		return err
	}
	s.out = dialed.(*net.TCPConn)
	if s.in, err = lis.AcceptTCP(); err != nil {
		return and(err, s.out.Close())
	}
	if from == pair.B {
		s.out, s.in = s.in, s.out
	}
	return nil
}

func (s *plain) close() error {
	return errors.Join(s.out.Close(), s.in.Close())
}

// until returns a function that does what do does. When its context ends, read and write fail.
func (s *plain) until(do func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			past := time.Unix(1, 0)
			_ = s.out.SetDeadline(past)
			_ = s.in.SetDeadline(past)
		})
		defer stop()
		return do()
	}
}

// write sends the pattern until enough is set.
func (s *plain) write() error {
	b := make([]byte, DefaultMessage)
	for at := uint64(0); !s.enough.Load(); at += uint64(len(b)) {
		s.pattern.Fill(b, at)
		if _, err := s.out.Write(b); err != nil {
			return err
		}
	}
	return s.out.CloseWrite()
}

// read checks the pattern until its end.
func (s *plain) read(reach func(octets uint64)) error {
	b := make([]byte, DefaultMessage)
	for at := uint64(0); ; reach(at) {
		n, err := s.in.Read(b)
		if i := s.pattern.Differs(b[:n], at); i >= 0 {
			return fmt.Errorf("octet %d is not what was sent", at+uint64(i))
		}
		if n > 0 {
			s.gaps.Arrive(uint64(n))
			at += uint64(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
