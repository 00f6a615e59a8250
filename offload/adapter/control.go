package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
)

// source answers requests at the control socket with the adapter's state.
type source struct{ *Adapter }

// Report implements control.Source.
func (s source) Report(ctx context.Context, parts report.Parts) (report.Engine, error) {
	r, err := s.Adapter.Report(ctx, parts&^report.PartMRs)
	if errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", control.ErrGone, err)
	}
	return r, err
}

// Regions implements control.Source. Regions yields the entries of the table. Regions
// ends early when the adapter is being closed.
func (s source) Regions(yield func(report.MR) bool) {
	var list []report.MR
	for next := uint32(1); next != 0; {
		if s.life.Err() != nil || !s.busy.TryRLock() {
			return
		}
		list, next = s.entries(next, regionsAtOnce, list[:0])
		s.busy.RUnlock()
		for _, mr := range list {
			if !yield(mr) {
				return
			}
		}
	}
}

// Drain implements control.Source.
func (s source) Drain(ctx context.Context, device string, progress func(report.Drain)) (report.Drain, error) {
	ctx, stop := s.While(ctx)
	defer stop()
	d, err := s.drain(ctx, device, progress)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", control.ErrGone, err)
	}
	return d.Drain, err
}

// Undrain implements control.Source.
func (s source) Undrain(device string) (report.Drain, error) {
	return report.Drain{Device: device, Stay: []report.Stay{}}, s.Adapter.Undrain(device)
}

// Upgrade implements control.Source.
func (s source) Upgrade(ctx context.Context, progress func(report.Upgrade)) (report.Upgrade, error) {
	ctx, stop := s.While(ctx)
	defer stop()
	if s.cfg.Upgrade == nil {
		if _, err := s.heirs(); err != nil {
			return report.Upgrade{}, err
		}
		return report.Upgrade{}, fmt.Errorf("%w, because its program starts no successor", ErrNotUpgradable)
	}
	r, err := s.cfg.Upgrade(ctx, func(step string) { progress(report.Upgrade{Step: step, Lost: []string{}, Warnings: []string{}}) })
	if err != nil {
		return report.Upgrade{}, err
	}
	return report.Upgrade{
		Successor: r.PID, Flows: r.Flows, Lost: append([]string{}, r.Lost...),
		Warnings:  append([]string{}, r.Warnings...),
		PrepareMS: ms(r.Waiting), FrozenMS: ms(r.Frozen),
	}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// openControl makes the socket from which tools read the adapter's state.
func (a *Adapter) openControl() (err error) {
	a.number, a.cookie = control.Number(), a.netns()
	if a.cfg.NoControl {
		return nil
	}
	path, err := control.Name(a.number)
	if err == nil {
		a.control, err = control.Serve(path, source{a}, a.log)
	}
	if err != nil {
		return fmt.Errorf("%w; or set NoControl in the adapter's Config, and do without `stag show`, `stag dump` and `stag metrics`", err)
	}
	return nil
}

// closeControl closes the control socket. Answers that are being sent may finish first,
// for a short time (control.Server.Close).
func (a *Adapter) closeControl() error {
	if a.control == nil {
		return nil
	}
	return a.control.Close()
}
