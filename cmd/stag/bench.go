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

	"github.com/stag-rdma/stag/cmd/stag/internal/bench"
)

// benchFlags are the options of a benchmark beside those that bench.Options
// has.
type benchFlags struct {
	bench.Options
	json    bool
	out     string
	profile string
}

func benchCommand() *cobra.Command {
	var o benchFlags
	cmd := &cobra.Command{
		Use:   "bench [TABLE...]",
		Short: "Measure stag beside the kernel's TCP and AF_XDP alone, on this machine",
		Long: `Makes network namespaces and veth pairs of its own, and measures every case once
in each round, in turn, so that whatever else the machine does meets all of them
alike. Prints ratios, then medians, then the conditions. Needs root.

Tables: ` + strings.Join(bench.TableNames(), ", ") + `; all of them if none is named.

An interrupted run prints what the rounds that were over have found.`,
		Example: `  stag bench
  stag bench goodput --mtu 1500 --rounds 9
  stag bench goodput --only "write offloaded;kernel TCP" --json
  stag bench --full --out results.txt`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.FixedCompletions(bench.TableNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Tables = args
			if err := o.Check(); err != nil {
				return usageError{fmt.Errorf("bench: %w", err)}
			}
			if err := o.run(cmd); err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "measure every row `N` times")
	f.DurationVar(&o.Time, "time", 600*time.Millisecond, "measure each stream for so `LONG` in each round")
	f.DurationVar(&o.Warm, "warm", 250*time.Millisecond, "let each stream run for so `LONG` before that")
	f.IntSliceVar(&o.MTUs, "mtu", []int{1500, 3506}, "measure with these MTUs: `OCTETS`, with commas between")
	f.StringVar(&o.Only, "only", "", "measure rows with one of these `WORDS` in their name, with semicolons between")
	f.BoolVar(&o.Full, "full", false, "measure every message size and number of connections, not a selection")
	f.BoolVar(&o.json, "json", false, "print everything as JSON")
	f.StringVar(&o.out, "out", "", "write the text to `FILE` too")
	f.StringVar(&o.profile, "cpuprofile", "", "write a processor profile of the whole run to `FILE`")
	return cmd
}

// run measures and prints. What an interrupted run has found is printed too.
func (o *benchFlags) run(cmd *cobra.Command) error {
	if os.Geteuid() != 0 {
		return errors.New("namespaces and AF_XDP need root: run it with sudo")
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2 * runtime.NumCPU()) // two hosts
	}
	if o.profile != "" {
		stop, err := startProfile(o.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	r, failed := bench.Run(cmd.Context(), o.Options, cmd.ErrOrStderr())
	if r == nil {
		return failed
	}
	return errors.Join(failed, o.publish(r, cmd.OutOrStdout()))
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

// publish prints the report, and writes it where it is wanted.
func (o *benchFlags) publish(r *bench.Report, w io.Writer) error {
	if o.out != "" {
		f, err := os.Create(o.out)
		if err != nil {
			return err
		}
		if err := errors.Join(r.Print(f), f.Close()); err != nil {
			return err
		}
	}
	if o.json {
		return r.PrintJSON(w)
	}
	return r.Print(w)
}
