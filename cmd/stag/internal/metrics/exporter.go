package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/cmd/stag/internal/version"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
)

// Options say which series an Exporter exports.
type Options struct {
	PerQP    bool         // also export series of every queue pair
	AllUsers bool         // also ask engines of other users
	Log      *slog.Logger // logs the engines that could not be asked
}

// Exporter makes the series of scrapes. It is safe for concurrent use.
type Exporter struct {
	Options
	build version.Info

	mu       sync.Mutex
	errors   map[string]float64 // number of scrape errors, by reason
	programs map[control.Endpoint]string
}

// New returns an Exporter. The error is that of version.Read.
func New(o Options) (*Exporter, error) {
	v, err := version.Read()
	if err != nil {
		return nil, err
	}
	x := &Exporter{Options: o, build: v, errors: map[string]float64{}, programs: map[control.Endpoint]string{}}
	for _, why := range []string{"gone", "timeout", "permission", "schema", "pins", "other"} {
		x.errors[why] = 0
	}
	return x, nil
}

// Write scrapes once and writes the series as text.
func (x *Exporter) Write(ctx context.Context, w io.Writer) error {
	all, err := x.registry(ctx, engines.Patience).Gather()
	if err != nil {
		return err
	}
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// registry makes a registry for one scrape. The scrape ends with ctx. Engines have to
// answer within patience.
func (x *Exporter) registry(ctx context.Context, patience time.Duration) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collector{x, ctx, patience})
	return r
}

// collector is one scrape.
type collector struct {
	x        *Exporter
	ctx      context.Context
	patience time.Duration
}

// Describe names all families.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range families {
		to <- f.desc
	}
}

// Collect asks the engines and sends the series.
func (c collector) Collect(to chan<- prometheus.Metric) {
	begin := time.Now()
	f, err := host(c.ctx, c.x.Options, c.patience)
	if c.ctx.Err() != nil {
		return // the client of the scrape has gone
	}
	s := sheet{}
	c.x.fill(s, f, err)
	s.set(scrapeTime, time.Since(begin).Seconds(), nil)
	s.collect(to)
}

// fill makes the series of everything that the scrape found.
func (x *Exporter) fill(s sheet, f found, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.failed("other", err)
	}
	reported, last := map[uint32]bool{}, x.programs
	x.programs = map[control.Endpoint]string{} // keeps only the names of engines that still exist
	for _, a := range f.answers {
		x.answered(s, a, last[a.at])
		for _, d := range a.engine.Devices {
			if a.tellsOf(d) {
				reported[d.Program] = true
			}
		}
	}
	if f.err != nil && !expected(f.err) {
		x.failed("pins", f.err)
	}
	s.pinned(f.pins, reported)
	s.set(buildInfo, 1, labels{"version": x.build.Version, "revision": x.build.Commit, "goversion": x.build.Go})
	for why, n := range x.errors {
		s.set(scrapeFails, n, labels{"reason": why})
	}
}

// answered makes the series of an engine's answer or of its failure. program is the
// program name in the engine's previous answer.
func (x *Exporter) answered(s sheet, a answer, program string) {
	if a.err != nil {
		x.failed(reason(a.err), a.err)
	}
	switch {
	case errors.Is(a.err, control.ErrGone):
		return // an engine that has ended gets no more samples, so its series end
	case a.err == nil:
		program = a.engine.Program
	case program == "":
		program = programOf(a.at.PID)
	}
	x.programs[a.at] = program
	of := a.labels(program)
	s.set(engineUp, one(a.err == nil), of)
	if a.err != nil {
		return
	}
	s.engine(a.engine, of, a.tellsOf)
	if x.PerQP {
		s.perQP(a.engine, of)
	}
}

// expected reports whether err is no failure: there are no pinned objects, or this user
// may not read them. `stag metrics` has told the user about this error when it started.
func expected(err error) bool {
	return errors.Is(err, loader.ErrNoBPFFS) || errors.Is(err, loader.ErrPermission) && os.Geteuid() != 0
}

func (x *Exporter) failed(why string, err error) {
	x.errors[why]++
	x.Log.Warn("scrape", "reason", why, "err", err)
}
