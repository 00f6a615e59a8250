package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// report is everything that a run has found.
type report struct {
	Conditions conditions
	Rounds     int
	Measured   time.Duration // per stream and round
	Spin       time.Duration // of the engines
	Path       string        // how packets get to the engines
	Streams    []*series
	TakeOvers  []*takeOverRow
}

// series is one case with what its rounds have found.
type series struct {
	Name     string
	MTU      int
	Threaded bool
	Samples  []sample

	// Medians, and their ratio to the kernel's better setting at this MTU.
	Gbps, PerCore           float64
	GbpsRatio, PerCoreRatio float64

	setting setting
}

// takeOverRow is what the take-overs of one kind have cost.
type takeOverRow struct {
	AtOnce int
	takeovers
	PerSecond                            float64
	HeldP50, HeldP99, StallP50, StallP99 float64 // milliseconds
}

// conclude computes what the samples come to.
func (r *report) conclude() {
	best := map[int]*series{}
	for _, s := range r.Streams {
		s.Gbps = median(each(s.Samples, func(x sample) float64 { return x.Gbps }))
		s.PerCore = median(each(s.Samples, func(x sample) float64 { return x.PerCore }))
		if b := best[s.MTU]; s.ours() == [2]bool{} && s.setting.verb == plainStream && (b == nil || b.Gbps < s.Gbps) {
			best[s.MTU] = s
		}
	}
	for _, s := range r.Streams {
		if b := best[s.MTU]; b != nil {
			s.GbpsRatio, s.PerCoreRatio = s.Gbps/b.Gbps, s.PerCore/b.PerCore
		}
	}
	for _, t := range r.TakeOvers {
		t.PerSecond = t.perSecond()
		t.HeldP50, t.HeldP99 = millis(quantile(t.Held, 50)), millis(quantile(t.Held, 99))
		t.StallP50, t.StallP99 = millis(quantile(t.Stall, 50)), millis(quantile(t.Stall, 99))
	}
}

func each(s []sample, f func(sample) float64) []float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = f(s[i])
	}
	return v
}

// printJSON writes everything, the single samples too.
func (r *report) printJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// print writes tables for people.
func (r *report) print(w io.Writer) {
	c := r.Conditions
	fmt.Fprintf(w, "Linux %s, %s, %d cores, %s, commit %s\n", c.Kernel, c.CPU, c.Cores, c.Go, c.Commit)
	fmt.Fprintf(w, "Load average %s before, %s after: other work shares the cores.\n", c.Load[0], c.Load[1])
	if len(r.Streams) != 0 {
		r.printStreams(w)
	}
	if len(r.TakeOvers) != 0 {
		r.printTakeOvers(w)
	}
}

func (r *report) printStreams(w io.Writer) {
	fmt.Fprintf(w, "Engines: %s; spin %v.\n", r.Path, r.Spin)
	fmt.Fprintf(w, "One stream in one direction, payload; medians of %d interleaved rounds of %v.\n", r.Rounds, r.Measured)
	fmt.Fprintf(w, "Ratios: to the better of the kernel's two settings at the same MTU. per core: for each\n")
	fmt.Fprintf(w, "second of processor time that both ends and their NAPI took together. The last three\n")
	fmt.Fprintf(w, "columns: segments sent again for each 10,000, packets in a step of the receiving engine\n")
	fmt.Fprintf(w, "and in a system call of the sending one.\n")
	mtu := 0
	for _, s := range r.Streams {
		if s.MTU != mtu {
			mtu = s.MTU
			fmt.Fprintf(w, "\nMTU %-13d %-8s %7s %7s %9s %7s %6s %7s %6s %6s\n",
				mtu, "NAPI", "Gb/s", "ratio", "per core", "ratio", "busy", "resent", "/step", "/call")
		}
		s.print(w)
	}
}

// napi says where the receive processing of the veth pair runs.
func (s *series) napi() string {
	if s.Threaded {
		return "threads"
	}
	return "inline"
}

// ours says on which sides an engine of ours works.
func (s *series) ours() [2]bool {
	return [2]bool{s.setting.stacks[from] == engine, s.setting.stacks[to] == engine}
}

func (s *series) print(w io.Writer) {
	ours := s.ours()
	of := func(f func(sample) float64) float64 { return median(each(s.Samples, f)) }
	fmt.Fprintf(w, "%-17s %-8s %7.2f %7.2f %9.2f %7.2f %6.2f", s.Name, s.napi(),
		s.Gbps, s.GbpsRatio, s.PerCore, s.PerCoreRatio, of(func(x sample) float64 { return x.Busy }))
	column(w, 7, ours[from], of(func(x sample) float64 { return 1e4 * per(x.Sides[from].Retransmits, x.Sides[from].TxPackets) }))
	column(w, 6, ours[to], of(func(x sample) float64 { return per(x.Sides[to].RxPackets, x.Sides[to].Steps) }))
	column(w, 6, ours[from], of(func(x sample) float64 { return per(x.Sides[from].TxPackets, x.Sides[from].Kicks) }))
	fmt.Fprintln(w)
}

// column prints v where it means something.
func column(w io.Writer, width int, there bool, v float64) {
	if there {
		fmt.Fprintf(w, " %*.1f", width, v)
	} else {
		fmt.Fprintf(w, " %*s", width, "-")
	}
}

// per is n for each of d.
func per(n, d uint64) float64 { return float64(n) / float64(max(d, 1)) }

func (r *report) printTakeOvers(w io.Writer) {
	fmt.Fprintf(w, "\nTake-overs of connections whose peer sends 64 octets and waits for them, without pause.\n")
	fmt.Fprintf(w, "held: segments parked; stall: the peer's longest wait. Milliseconds.\n\n")
	fmt.Fprintf(w, "%8s %7s %9s %9s %9s %9s %9s\n", "at once", "count", "a second", "held p50", "p99", "stall p50", "p99")
	for _, t := range r.TakeOvers {
		fmt.Fprintf(w, "%8d %7d %9.1f %9.2f %9.2f %9.2f %9.2f\n",
			t.AtOnce, t.Count, t.PerSecond, t.HeldP50, t.HeldP99, t.StallP50, t.StallP99)
	}
}
