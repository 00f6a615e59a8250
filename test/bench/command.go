package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// flags holds the values of the command line's flags.
type flags struct {
	measure.Options
	json    bool
	mark    bool
	out     string
	plot    string
	from    string
	profile string
}

// command returns the command line of the benchmark.
func command() *cobra.Command {
	var o flags
	cmd := &cobra.Command{
		Use:   "bench [TABLE...]",
		Short: "Measure stag beside the kernel's TCP and AF_XDP alone, on this machine",
		Long: `The benchmark makes network namespaces and veth pairs. It measures every row once in
each round, so that other programs of the machine disturb all rows equally. It prints
ratios, medians and the conditions. All tables but micro need root.

Tables: ` + strings.Join(measure.TableNames(), ", ") + `. The name failover
stands for ports and all tables behind it. Without names the benchmark measures all
tables but fairness and those of failover, which need --full.

After Ctrl-C the benchmark prints the figures of the rounds that had ended.

--plot draws charts of the medians, and of the lowest and highest round. --from prints
and draws the figures of a file that --json wrote. It measures nothing and needs no root.`,
		Example: `  go run ./test/bench
  go run ./test/bench goodput --mtu 1500 --rounds 9
  go run ./test/bench goodput --only "write offloaded;kernel TCP" --json
  go run ./test/bench failover --mtu 1500 --rounds 9
  go run ./test/bench --full --json --plot charts > results.json
  go run ./test/bench --from results.json --plot charts --out results.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Tables = measure.Expand(args)
			if err := o.check(cmd); err != nil {
				return usageError{err}
			}
			return o.run(cmd)
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w: see --help", err)}
	})
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "measure every row `N` times")
	f.DurationVar(&o.Time, "time", 600*time.Millisecond, "measure each stream for `DURATION` in each round")
	f.DurationVar(&o.Warm, "warm", 250*time.Millisecond, "let each stream run for `DURATION` before the measurement")
	f.IntSliceVar(&o.MTUs, "mtu", []int{1500, 3506, 9000}, "measure with these MTUs: `OCTETS` separated by commas")
	f.StringVar(&o.Only, "only", "", "measure the rows whose name contains one of `WORDS`, which are separated by semicolons")
	f.BoolVar(&o.Full, "full", false, "measure every message size and number of connections, not a selection")
	f.BoolVar(&o.json, "json", false, "print everything as JSON")
	f.BoolVar(&o.mark, "markdown", false, "print the goals, the medians and their ranges as Markdown")
	f.StringVar(&o.out, "out", "", "write the text to `FILE` too")
	f.StringVar(&o.plot, "plot", "", "draw charts as SVG files in directory `DIR`")
	f.StringVar(&o.from, "from", "", "measure nothing: read `FILE`, which --json wrote")
	f.StringVar(&o.profile, "cpuprofile", "", "write a processor profile of the whole run to `FILE`")
	return cmd
}

// check returns an error if the command line is wrong.
func (o *flags) check(cmd *cobra.Command) error {
	if o.json && o.mark {
		return errors.New("--json and --markdown: choose one")
	}
	if o.from == "" {
		return o.Check()
	}
	if len(o.Tables) != 0 {
		return errors.New("--from takes every table of its file: name none")
	}
	for _, other := range []string{"rounds", "time", "warm", "mtu", "only", "full", "cpuprofile"} {
		if cmd.Flags().Changed(other) {
			return fmt.Errorf("--%s has no meaning with --from: choose one", other)
		}
	}
	return nil
}

// run measures and prints the report. It also prints the results of an interrupted run.
func (o *flags) run(cmd *cobra.Command) error {
	if o.from != "" {
		r, err := readReport(o.from)
		if err != nil {
			return err
		}
		return o.publish(r, cmd.OutOrStdout())
	}
	if o.NeedsRoot() && os.Geteuid() != 0 {
		return errors.New("namespaces and AF_XDP need root: run it as root, or only the table micro")
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.NumCPU()) // one process runs two hosts
	}
	if o.profile != "" {
		stop, err := startProfile(o.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	r, failed := measure.Run(cmd.Context(), o.Options, cmd.ErrOrStderr())
	if r == nil {
		return failed
	}
	return errors.Join(failed, o.publish(r, cmd.OutOrStdout()))
}

// readReport reads a report that an earlier run printed as JSON.
func readReport(name string) (*measure.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := measure.ReadReport(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func startProfile(name string) (stop func(), err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// publish prints the report. It also saves and draws the report if the flags ask for
// that. It prints even if the saving or drawing fails.
func (o *flags) publish(r *measure.Report, w io.Writer) error {
	return errors.Join(o.print(r, w), o.draw(r))
}

func (o *flags) draw(r *measure.Report) error {
	if o.plot == "" {
		return nil
	}
	_, err := r.Plot(o.plot)
	return err
}

func (o *flags) print(r *measure.Report, w io.Writer) error {
	var kept error
	if o.out != "" {
		kept = o.keep(r)
	}
	switch {
	case o.json:
		return errors.Join(kept, r.PrintJSON(w))
	case o.mark:
		return errors.Join(kept, r.PrintMarkdown(w))
	}
	return errors.Join(kept, r.Print(w))
}

// keep writes the printed report into a file.
func (o *flags) keep(r *measure.Report) error {
	f, err := os.Create(o.out)
	if err != nil {
		return err
	}
	return errors.Join(r.Print(f), f.Close())
}
