package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/rdma"
)

// Defaults, the same as those of perftest.
const (
	perfPort       = 18515
	perfBWSize     = 64 << 10
	perfLatSize    = 2
	perfBWRounds   = 5000
	perfLatRounds  = 1000
	perfTxDepth    = 128
	perfRxDepth    = 512
	perfInterval   = 5 // seconds, the default with --run_infinitely
	perfReportFile = "perftest_out.json"
)

func perfCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure bandwidth and latency between two machines, as perftest does",
		Long: `Measures RDMA Writes, RDMA Reads and Sends between two machines. Options, header
and columns are those of perftest. Start a test without an address on one machine:
this is the server. Then start the same test with the server's address on the other
machine: this is the client. Give both ends the same options; the ends compare them.

With --perftest the other end is one of perftest's own programs.`,
		Annotations: manual(perfManual + "\n\nWithout --for, --carrier auto takes the wish from the test: the latency tests are for\nlatency, the others for throughput." + carrierManual),
		Example: `  stag perf write_bw -d eth1
  stag perf write_bw -d eth1 192.0.2.1
  stag perf write_bw --perftest -d eth1
  ib_write_bw -R -F -d siw0 192.0.2.1 # on the other machine`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("perf: unknown test %q: see stag perf --help", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, t := range perf.Tests {
		cmd.AddCommand(perfTest(t))
	}
	return cmd
}

// perfFlags are the flags of a test that perf.Options does not have.
type perfFlags struct {
	perf.Options
	perftestFlags
	seconds    float64
	margin     float64
	json, save bool
	file       string
}

func perfTest(t perf.Test) *cobra.Command {
	o := perfFlags{Options: perf.Options{Test: t}}
	cmd := &cobra.Command{
		Use:     string(t) + " [SERVER]",
		Short:   perfShort[t],
		Long:    perfShort[t] + ".\n\n" + perfLong(t),
		Example: fmt.Sprintf("  stag perf %[1]s -d eth1\n  stag perf %[1]s -d eth1 192.0.2.1\n  stag perf %[1]s --carrier kernel -D 10 --json 192.0.2.1", t),
		Args:    oneServer,

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.Address = args[0]
			}
			if err := o.check(cmd); err != nil {
				return usageError{fmt.Errorf("perf %s: %w", t, err)}
			}
			return o.run(cmd)
		},
	}
	o.flags(cmd)
	return cmd
}

var perfShort = map[perf.Test]string{
	perf.WriteBW:  "Measure the bandwidth of RDMA Writes",
	perf.ReadBW:   "Measure the bandwidth of RDMA Reads",
	perf.SendBW:   "Measure the bandwidth of Sends",
	perf.WriteLat: "Measure the latency of RDMA Writes",
	perf.ReadLat:  "Measure the latency of RDMA Reads",
	perf.SendLat:  "Measure the latency of Sends",
}

const perfServerToo = `
The server measures as well: from each of its messages to the client's next one.`

func perfLong(t perf.Test) string {
	switch t {
	case perf.WriteLat:
		return `The server answers each Write with a Write. The latency is half of the round trip.
To see a Write arrive, perftest polls memory. This command instead posts an empty
Send behind each Write, and the peer waits for the completion of its receive. With
--perftest this command polls memory as well, the server writes first, and there
is one latency fewer than messages.` + perfServerToo
	case perf.ReadLat:
		return `The latency is the time from the post of a Read to its completion.`
	case perf.SendLat:
		return `The server answers each Send with a Send. The latency is half of the round trip.` + perfServerToo
	}
	return `The measured time ends when the peer has received all messages. With -D a margin at
each end of that time is not measured. A MB is 2^20 octets, and a Gb is 10^9 bits.
The peak is the highest rate of a run of messages, from the post of the first to the
completion of the last. The peak is printed as 0 if it is not measured: with -N at
either end, and at the server of send_bw --perftest, as in perftest.`
}

func oneServer(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("perf %s: unexpected argument %q: see %s --help", cmd.Name(), args[1], cmd.CommandPath())}
	}
	if len(args) == 1 && args[0] == "" {
		return usageError{fmt.Errorf("perf %s: the server's address is empty", cmd.Name())}
	}
	return nil
}

func (o *perfFlags) flags(cmd *cobra.Command) {
	size, rounds := perfBWSize, uint64(perfBWRounds)
	if o.Test.Latency() {
		size, rounds = perfLatSize, perfLatRounds
	}
	f := cmd.Flags()
	f.SortFlags = false
	portsFlag(f, &o.Links, "ib-dev", "d", "interfaces to use: the ports of one adapter")
	carrierFlags(f, &o.Asked, &o.KernelPort, "use the kernel's TCP instead of an interface")
	daemonFlag(f, &o.Daemon)
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	f.Uint16VarP(&o.Port, "port", "p", perfPort, "TCP port of the server")
	f.IntVarP(&o.Size, "size", "s", size, "octets of a message")
	f.BoolVarP(&o.All, "all", "a", false, "measure all sizes from 2 to 2^23 octets, in powers of 2")
	f.Uint64VarP(&o.Iterations, "iters", "n", rounds, "messages for each QP and size")
	f.Float64VarP(&o.seconds, "duration", "D", 0, "seconds for each size, instead of -n")
	f.Float64VarP(&o.margin, "margin", "f", 0, "seconds at each end of -D that are not measured (default a quarter of -D)")
	f.IntVarP(&o.Inline, "inline_size", "I", 0, "post messages of up to this many octets inline")
	f.BoolVarP(&o.Events, "events", "e", false, "sleep until there is a completion, without polling first")
	f.BoolVar(&o.Verify, "verify", false, "check the data: all octets of Sends and Reads; of Writes, the memory after the last ones")
	f.BoolVar(&o.Perftest, "perftest", false, "the other end is perftest's ib_"+string(o.Test)+", started with -R")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.BoolVar(&o.save, "out_json", false, "also write the result to a file, as JSON")
	f.StringVar(&o.file, "out_json_file", perfReportFile, "name of the file for --out_json")
	o.QPs, o.TxDepth, o.RxDepth = 1, perfTxDepth, perfRxDepth
	if o.Test.Latency() {
		o.latencyFlags(f)
	} else {
		o.bandwidthFlags(f)
	}
	o.perftestFlags.flags(f)
}

func (o *perfFlags) latencyFlags(f *pflag.FlagSet) {
	f.BoolVarP(&o.Histogram, "report-histogram", "H", false, "print the distribution of latencies as well")
	f.BoolVarP(&o.Unsorted, "report-unsorted", "U", false, "print every latency as well, in the order of measurement")
}

func (o *perfFlags) bandwidthFlags(f *pflag.FlagSet) {
	f.IntVarP(&o.QPs, "qp", "q", 1, "number of QPs")
	f.IntVarP(&o.TxDepth, "tx-depth", "t", perfTxDepth, "most messages of a QP that are posted and not completed")
	if o.Test == perf.SendBW {
		f.IntVarP(&o.RxDepth, "rx-depth", "r", perfRxDepth, "receives to post for each QP")
	}
	f.IntVarP(&o.List, "post_list", "l", 1, "messages to post with one call")
	f.IntVarP(&o.Moderation, "cq-mod", "Q", 0, "messages for each completion (default -l if given; else the smaller of 100 and -t, or 1 for messages above 8192 octets)")
	f.BoolVarP(&o.Both, "bidirectional", "b", false, "send messages from both ends")
	f.BoolVarP(&o.NoPeak, "noPeak", "N", false, "do not measure the peak, and print 0")
	f.BoolVar(&o.Gbits, "report_gbits", false, "print Gb/s instead of MB/s")
	f.BoolVar(&o.Endless, "run_infinitely", false, "run until Ctrl-C, and print a row every 5 s, or as often as -D says")
}

// check finds mistakes on the command line, and fills in options that other options
// imply.
func (o *perfFlags) check(cmd *cobra.Command) error {
	given := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && f.Changed
	}
	if err := o.perftestFlags.check(given); err != nil {
		return err
	}
	if err := checkCarrier(&o.Asked, &o.KernelPort, &o.Links, "-d", o.wish()); err != nil {
		return err
	}
	byClock := given("duration") || o.Endless
	switch {
	case o.All && given("size"):
		return errors.New("-a and -s: choose one")
	case given("duration") && !(o.seconds >= 0.01 && o.seconds <= 1e6):
		return fmt.Errorf("-D %v: choose 0.01 to 1000000 seconds", o.seconds)
	case given("duration") && given("iters"):
		return errors.New("-n and -D: choose one")
	case o.Endless && given("iters"):
		return errors.New("-n and --run_infinitely: choose one")
	case !(o.margin >= 0 && o.margin <= 1e6):
		return fmt.Errorf("-f %v: choose 0 or more seconds", o.margin)
	case given("margin") && !given("duration"):
		return errors.New("-f has no meaning without -D")
	case given("post_list") && o.List < 1:
		return fmt.Errorf("-l %d: choose 1 or more", o.List)
	case given("cq-mod") && o.Moderation == 0:
		return errors.New("-Q 0: choose 1 or more")
	case given("out_json_file") && !o.save:
		return errors.New("--out_json_file has no meaning without --out_json")
	case o.file == "":
		return errors.New("--out_json_file: the name is empty")
	}
	if byClock {
		o.byClock(given("duration"), given("margin"))
	}
	return o.Check()
}

// wish returns what the test measures.
func (o *perfFlags) wish() rdma.Wish {
	if o.Test.Latency() {
		return rdma.ForLatency
	}
	return rdma.ForThroughput
}

// byClock fills in the duration and the margin.
func (o *perfFlags) byClock(given, margin bool) {
	if !given {
		o.seconds = perfInterval
	}
	o.Duration, o.Iterations = seconds(o.seconds), 0
	switch {
	case margin:
		o.Margin = seconds(o.margin)
	case !o.Endless:
		o.Margin = o.Duration / 4
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (o *perfFlags) run(cmd *cobra.Command) error {
	if !o.json {
		o.Out = cmd.OutOrStdout()
	}
	o.Progress, o.Chosen, o.Log = os.Stderr, os.Stderr, logger(cmd.Context())
	if err := areUp(o.Links); err != nil {
		return fmt.Errorf("perf %s: %w", o.Test, err)
	}
	report, err := o.create()
	if err != nil {
		return err
	}
	r, err := perf.Run(cmd.Context(), o.Options)
	if err != nil {
		err = fmt.Errorf("perf %s: %w", o.Test, advised(err))
	}
	if err != nil && !errors.Is(err, perf.ErrInterrupted) {
		return errors.Join(err, report.discard())
	}
	if o.json {
		err = errors.Join(err, o.printed(writeJSON(cmd.OutOrStdout(), r)))
	}
	return errors.Join(err, report.keep(r))
}

// printed adds to err, the error of a Write, that the result could not be printed.
func (o *perfFlags) printed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("perf %s: print the result: %w", o.Test, err)
}

// perfReport is the file of --out_json. The file has a temporary name until it is
// complete. A nil perfReport writes no file.
type perfReport struct {
	*os.File
	name string
}

// create creates the file before the test, so that an error cannot lose a result.
func (o *perfFlags) create() (*perfReport, error) {
	if !o.save {
		return nil, nil
	}
	f, err := os.CreateTemp(filepath.Dir(o.file), "."+filepath.Base(o.file)+".*")
	if err != nil {
		return nil, fmt.Errorf("perf %s: --out_json_file: %w: choose another place", o.Test, err)
	}
	return &perfReport{f, o.file}, nil
}

func (r *perfReport) discard() error {
	if r == nil {
		return nil
	}
	return errors.Join(r.Close(), os.Remove(r.Name()))
}

func (r *perfReport) keep(v perf.Result) error {
	if r == nil {
		return nil
	}
	err := errors.Join(writeJSON(r, v), r.Chmod(0o644), r.Close())
	if err == nil {
		err = os.Rename(r.Name(), r.name)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write %s: %w", r.name, err), os.Remove(r.Name()))
	}
	return err
}
