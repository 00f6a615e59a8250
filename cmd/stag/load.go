package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/load"
	"github.com/stag-rdma/stag/loader"
)

func loadCommand() *cobra.Command {
	var (
		o      load.Options
		wait   time.Duration
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "load IFACE",
		Short: "Attach the XDP program to an interface, so that it stays",
		Long: `Attaches the XDP program to an interface. The program stays attached when no stag
runs: it is pinned below /sys/fs/bpf/stag. It passes all packets to the kernel except
those of connections that an adapter has taken over. The next process that opens
the interface adopts this program, instead of attaching one of its own.

--tune also changes settings of the interface. stag unload restores them.`,
		Annotations: manual(loadManual),
		Example: `  stag load eth1
  stag load eth1 --tune=throughput --max-flows 1024
  stag load eth2 --generic --instance storage
  stag load eth1 --json`,
		Args:              oneArgument("load", "the interface"),
		ValidArgsFunction: completeOneInterface,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Link = args[0]
			if err := checkLoad(cmd, o, wait); err != nil {
				return usageError{fmt.Errorf("load: %w", err)}
			}
			if !cmd.Flags().Changed("max-flows") {
				o.MaxFlows = 0 // any number that is already there is accepted
			}
			if cmd.Flags().Changed("orphan-wait") {
				if o.OrphanWait = wait; wait == 0 {
					o.OrphanWait = loader.NoOrphanWait
				}
			}
			l, err := load.Load(o)
			if err != nil {
				err = fmt.Errorf("load: %w", err)
			}
			if asJSON && err == nil {
				return writeJSON(cmd.OutOrStdout(), l)
			}
			if asJSON {
				return err
			}
			return errors.Join(err, l.Print(cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Instance, "instance", "", "name of the instance (default the interface's name and the number of its network namespace)")
	f.BoolVar(&o.Generic, "generic", false, "use generic mode instead of native: slower, for drivers without XDP")
	f.StringVar((*string)(&o.Tune), "tune", "", "change settings until unload: basics (plain --tune), latency or throughput")
	f.Lookup("tune").NoOptDefVal = string(loader.TuneBasics)
	f.IntVar(&o.MaxFlows, "max-flows", 65536, "most connections at a time over IPv4, and as many over IPv6, on all interfaces of the instance together")
	f.DurationVar(&wait, "orphan-wait", loader.DefaultOrphanWait, "if an engine dies, drop the segments of its connections for this time; then the kernel resets the peers")
	f.IntVar(&o.Queues, "queues", 0, "number of queues to reserve room for, if the interface will get more; 0 means its present number")
	f.BoolVar(&asJSON, "json", false, "print what was done as JSON")
	return cmd
}

// oneArgument accepts exactly one argument, which must not be empty. what names the
// argument in the error.
func oneArgument(command, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError{fmt.Errorf("%s: name %s: see stag %s --help", command, what, command)}
		}
		return atMost(1)(cmd, args)
	}
}

// Limits of the flags. The loader and the kernel check more.
const (
	mostFlows  = 1 << 20
	mostQueues = 1 << 12
	mostWait   = 24 * time.Hour
)

func checkLoad(cmd *cobra.Command, o load.Options, wait time.Duration) error {
	switch {
	case o.MaxFlows < 1 || o.MaxFlows > mostFlows:
		return fmt.Errorf("--max-flows %d: choose 1 to %d", o.MaxFlows, mostFlows)
	case wait < 0 || wait > mostWait:
		return fmt.Errorf("--orphan-wait %v: choose 0s to %v", wait, mostWait)
	case o.Queues < 0 || o.Queues > mostQueues:
		return fmt.Errorf("--queues %d: choose 1 to %d", o.Queues, mostQueues)
	case cmd.Flags().Changed("tune") && (o.Tune == loader.TuneNothing || !slices.Contains(loader.Tunes, o.Tune)):
		return fmt.Errorf("--tune=%s: choose basics, latency or throughput", o.Tune)
	case cmd.Flags().Changed("instance"):
		return load.CheckInstance(o.Instance)
	}
	return nil
}
