package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
)

// Drain moves every connection of a port to other ports of the adapter: to the port
// through which the kernel's route leads, or else to another one through which the peer
// can be reached. The peers do not notice. No connection comes to the port until Undrain.
// A connection that is made while the kernel's route still leads through the port moves
// away at once.
//
// The port stays open, because peers may send to it for ever. Drain returns one error for
// all connections that could not move; they go on at the port. Drain fails if there is no
// such port, or no other.
func (a *Adapter) Drain(ctx context.Context, port string) error {
	d, err := a.drain(ctx, port, func(report.Drain) {})
	if err != nil {
		return err
	}
	if d.Stayed != 0 {
		return fmt.Errorf("drain %s: %d connections stay: %w", port, d.Stayed, d.why)
	}
	return ctx.Err()
}

// drained is the result of drain.
type drained struct {
	report.Drain
	why error // why the first connection stays
}

// drain does Drain. drain calls progress after each connection, one call at a time.
func (a *Adapter) drain(ctx context.Context, port string, progress func(report.Drain)) (d drained, err error) {
	p, err := a.portNamed(port)
	if err != nil {
		return d, fmt.Errorf("drain: %w", err)
	}
	if len(a.Ports()) == 1 {
		return d, fmt.Errorf("drain %s: the adapter has no other port: open it with several", port)
	}
	if !p.nic.BarredBy(nic.BarDrained) {
		a.moves.drained(port)
	}
	p.nic.Bar(nic.BarDrained)
	a.groups.drain(p, true)
	var (
		moves sync.WaitGroup
		mu    sync.Mutex // guards d
	)
	flows := p.nic.Flows()
	d.Drain = report.Drain{Device: port, Connections: len(flows), Stay: []report.Stay{}}
	room := make(chan struct{}, drainAtOnce)
	for _, f := range flows {
		room <- struct{}{}
		moves.Go(func() {
			defer func() { <-room }()
			err := a.moveAway(ctx, f, p)
			mu.Lock()
			defer mu.Unlock()
			d.add(f, err)
			progress(d.Drain)
		})
	}
	moves.Wait()
	return d, nil
}

// add adds what became of a connection.
func (d *drained) add(f *nic.Flow, err error) {
	switch {
	case err == nil:
		d.Moved++
		return
	case nic.HasEnded(err):
		d.Ended++
		return
	}
	if d.Stayed++; d.Stayed == 1 {
		d.why = err
	}
	if len(d.Stay) < report.MaxStay {
		k := f.Key()
		d.Stay = append(d.Stay, report.Stay{Flow: report.FlowID(f.ID()), Local: k.LocalAddr(), Remote: k.RemoteAddr(), Why: err.Error()})
	}
}

// drainAtOnce limits how many connections Drain moves at a time.
const drainAtOnce = 64

// Undrain lets connections come to a port again after Drain. Those whose route leads
// through the port come at once.
func (a *Adapter) Undrain(port string) error {
	p, err := a.portNamed(port)
	if err != nil {
		return fmt.Errorf("undrain: %w", err)
	}
	a.groups.drain(p, false)
	p.nic.Unbar(nic.BarDrained)
	return nil
}

func (a *Adapter) portNamed(name string) (*Port, error) {
	for _, p := range a.Ports() {
		if p.name == name {
			return p, nil
		}
	}
	if a.cfg.KernelPort {
		return nil, errors.New("the adapter uses the kernel's TCP, and has no port")
	}
	return nil, fmt.Errorf("no port %s: the adapter has %s", name, a.portNames())
}

// moveAway moves a connection from p to another port.
func (a *Adapter) moveAway(ctx context.Context, f *nic.Flow, p *Port) error {
	err := error(nil)
	for _, to := range a.refuges(f, p) {
		err = f.MoveTo(ctx, to.nic, nic.Shift{Cause: nic.CauseDrain, Forced: to.forced})
		if err == nil || nic.HasEnded(err) {
			return err
		}
	}
	if err == nil {
		err = errors.New("no other port is up")
	}
	return err
}

// refuge is a port to which a connection can move.
type refuge struct {
	nic    *nic.NIC
	forced bool // the kernel's route does not lead there
}

// refuges lists the ports to which a connection of p can move, the best first.
func (a *Adapter) refuges(f *nic.Flow, p *Port) (list []refuge) {
	routed := f.Routed()
	for _, to := range a.Ports() {
		switch {
		case to == p || to.nic.Barred() || to.nic.Down() || to.nic.Idle():
		case to.nic == routed:
			list = append([]refuge{{to.nic, false}}, list...)
		default:
			list = append(list, refuge{to.nic, true})
		}
	}
	return list
}

// leaveDrained moves a connection that was made at a drained port away.
func (a *Adapter) leaveDrained(p *Port, f *nic.Flow) {
	if !p.nic.BarredBy(nic.BarDrained) {
		return
	}
	a.Go(func() {
		ctx, cancel := a.While(context.Background())
		defer cancel()
		if err := a.moveAway(ctx, f, p); err != nil && !nic.HasEnded(err) {
			a.log.Warn("connection stays at a drained port", "port", p.name, "err", err)
		}
	})
}
