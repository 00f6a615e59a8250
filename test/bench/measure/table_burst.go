package measure

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// burst is how many connections are made, or taken over, at the same time.
const burst = 2000

// ConnectedPerS and TakenPerS are events per second.
const (
	ConnectedPerS Figure = "kernel_connects_per_s"
	TakenPerS     Figure = "takeovers_per_s"
	TakenRatio    Figure = "takeovers_to_connects"
)

// burstTable compares taking connections over with making connections, in the same run
// and on the same pair.
func burstTable(Options) *Table {
	return &Table{
		Name:  "burst",
		Title: "A burst of 2,000 connections: made by the kernel, then taken over",
		About: `connects: connect and accept of the kernel's TCP, both ends in this process, 32 at
a time. take-overs: nic.Take of one end of each, 2,000 at once, grace period included.
verbs: rdma Dial and Accept, which is both with the MPA exchange, for both ends.`,
		Columns: []Column{{ConnectedPerS, "connect/s", 0, false}, {TakenPerS, "taken/s", 0, false}, {TakenRatio, "ratio", 3, false}, {OpenedPerS, "verbs/s", 0, false}},
		Rows: []*Row{{
			Case: Case{Name: "burst", Connections: burst},
			run:  func(ctx context.Context) (Values, error) { return measureBurst(ctx, burst) },
		}},
	}
}

func measureBurst(ctx context.Context, n int) (v Values, err error) {
	s, err := newStage(setting{stacks: [2]stack{kernel, offload}, mtu: 1500, flows: maxCrowd})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	begin := time.Now()
	theirs, ours, err := s.connectAll(ctx, n)
	connects := float64(n) / time.Since(begin).Seconds()
	defer closeAll(theirs, ours)
	if err != nil {
		return nil, err
	}
	begin = time.Now()
	if err := s.takeAll(ctx, ours); err != nil {
		return nil, err
	}
	taken := float64(n) / time.Since(begin).Seconds()
	verbs, err := measureVerbBurst(ctx, n)
	return Values{ConnectedPerS: connects, TakenPerS: taken, TakenRatio: taken / connects, OpenedPerS: verbs}, err
}

// measureVerbBurst returns how many pairs of QPs are connected per second.
func measureVerbBurst(ctx context.Context, n int) (_ float64, err error) {
	c, err := newCrowd(ctx, noReceives)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	begin := time.Now()
	err = c.grow(ctx, n, n)
	return float64(n) / time.Since(begin).Seconds(), err
}

func closeAll(groups ...[]*net.TCPConn) {
	for _, g := range groups {
		for _, c := range g {
			if c != nil {
				c.Close() // if the connection was taken over, Close closes only the descriptor
			}
		}
	}
}

// connectAll opens n kernel connections from side A to side B at the same time.
func (s *stage) connectAll(ctx context.Context, n int) (a, b []*net.TCPConn, err error) {
	var l net.Listener
	err = s.pair.Do(pair.B, func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // an MPTCP connection cannot be taken over
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(s.pair.Ends[pair.B].V4.Addr().String(), "0"))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	a, b = make([]*net.TCPConn, n), make([]*net.TCPConn, n)
	errs := make([]error, dialers+1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range b {
			c, err := l.Accept()
			if err != nil {
				errs[dialers] = err
				return
			}
			b[i] = c.(*net.TCPConn)
		}
	})
	// A few threads stay in the namespace, because entering it costs more than a
	// connect.
	for w := range dialers {
		wg.Go(func() {
			err := s.pair.Do(pair.A, func() (err error) {
				var d net.Dialer
				d.SetMultipathTCP(false)
				for i := w; i < n && err == nil; i += dialers {
					var c net.Conn
					if c, err = d.DialContext(ctx, "tcp", l.Addr().String()); err == nil {
						a[i] = c.(*net.TCPConn)
					}
				}
				return err
			})
			if err != nil {
				errs[w] = err
				l.Close() // otherwise the other end would wait forever
			}
		})
	}
	wg.Wait()
	return a, b, errors.Join(errs...)
}

// dialers is how many connections are being made at the same time.
const dialers = 32

// takeAll takes all connections over at side B at the same time.
func (s *stage) takeAll(ctx context.Context, conns []*net.TCPConn) error {
	var wg sync.WaitGroup
	errs := make([]error, len(conns))
	for i, c := range conns {
		wg.Go(func() {
			_, errs[i] = s.nics[pair.B].Take(ctx, c, octets.NewEcho(), nic.DefaultOptions)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// burstGoals compares take-overs with new connections.
func burstGoals(r *Report) (list []Goal) {
	t := r.table("burst")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		if v, ok := row.Median[TakenRatio]; ok {
			list = append(list, Goal{What: "take-overs against kernel connect and accept, burst of 2,000", Want: 0.3, Have: v})
		}
	}
	return list
}
