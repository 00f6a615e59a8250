package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
)

// These are the defaults and limits of iscsi perf. The defaults are those of iscsi-perf.
const (
	loadDepth      = 128
	mostLoadDepth  = 4096
	loadBlocks     = 8
	mostLoadBlocks = 1 << 16
	mostLoadMemory = 4 << 30 // octets of all buffers, for blocks of 4096 octets
)

// loadFlags are the flags of iscsi perf.
type loadFlags struct {
	iscsiFlags
	storage.LoadOptions
	seconds float64
}

func iscsiPerf() *cobra.Command {
	var o loadFlags
	cmd := &cobra.Command{
		Use:   "perf URL",
		Short: "Measure a disk, as iscsi-perf does",
		Long: `Reads a disk, or with -w writes it, and prints the lines of iscsi-perf: commands in a
second and MB (2^20 octets) in a second. Lines with latencies and processor time
follow. Options are those of iscsi-perf. With -w the contents of the disk are lost.`,
		Annotations: manual(iscsiPerfManual),
		Example: `  stag iscsi perf -r -m 32 -b 8 -t 10 iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi perf -m 16 -b 512 -t 10 -i eth1 \
    iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1`,
		Args: exactly(1, "the URL of a disk"),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.URL = args[0]
			if err := o.check(cmd); err != nil {
				return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	o.initiator(f)
	o.recovery(f)
	f.IntVarP(&o.Depth, "max-requests", "m", loadDepth, "commands in flight")
	f.IntVarP(&o.Blocks, "blocks", "b", loadBlocks, "logical blocks of a command")
	f.Float64VarP(&o.seconds, "time", "t", 0, "seconds to run (default until Ctrl-C)")
	f.BoolVarP(&o.Random, "random", "r", false, "use random places instead of one after another")
	f.BoolVarP(&o.LoadOptions.Write, "write", "w", false, "write instead of reading: the contents of the disk are lost")
	return cmd
}

// check finds mistakes on the command line.
func (o *loadFlags) check(cmd *cobra.Command) error {
	if err := o.iscsiFlags.check(); err != nil {
		return err
	}
	switch {
	case o.Depth < 1 || o.Depth > mostLoadDepth:
		return fmt.Errorf("-m %d: choose 1 to %d", o.Depth, mostLoadDepth)
	case o.Blocks < 1 || o.Blocks > mostLoadBlocks:
		return fmt.Errorf("-b %d: choose 1 to %d", o.Blocks, mostLoadBlocks)
	case o.Blocks*o.Depth*4096 > mostLoadMemory:
		return fmt.Errorf("-m %d and -b %d: the buffers would take more than 4 GiB: choose fewer", o.Depth, o.Blocks)
	case cmd.Flags().Changed("time") && !(o.seconds >= 0.01 && o.seconds <= 1e6):
		return fmt.Errorf("-t %v: choose 0.01 to 1000000 seconds", o.seconds)
	}
	return checkURL(cmd, o.URL, true)
}

func (o *loadFlags) run(cmd *cobra.Command) error {
	if err := o.start(cmd.Context()); err != nil {
		return iscsiFailed(cmd, err)
	}
	l := o.LoadOptions
	l.Options, l.Time = o.iscsiFlags.Options, seconds(o.seconds)
	if !o.json {
		l.Out = cmd.OutOrStdout()
	}
	if dump.IsTerminal(os.Stderr) {
		l.Current = os.Stderr
	}
	r, err := storage.Perf(cmd.Context(), l)
	if err != nil && !errors.Is(err, storage.ErrInterrupted) || r.Seconds == 0 {
		return iscsiFailed(cmd, err)
	}
	return errors.Join(iscsiFailed(cmd, err), o.show(cmd, cmd.OutOrStdout(), r))
}
