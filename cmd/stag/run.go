package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	runner "github.com/stag-rdma/stag/cmd/stag/internal/run"
	"github.com/stag-rdma/stag/rdma"
)

func runCommand() *cobra.Command {
	var o runner.Options
	cmd := &cobra.Command{
		Use:   "run [--device IFACE | --carrier kernel] -- PROGRAM [ARGUMENT]...",
		Short: "Run a program for libibverbs or librdmacm, unchanged, on any Ethernet card",
		Long: `Runs a program with stag's libibverbs and librdmacm (make verbs) on the adapter of a
daemon. If no daemon runs, stag run starts one, which ends after the program. Without
--device that daemon uses the kernel's TCP, and needs no root.

The exit status and the signals are the program's. A program that is linked statically
or setuid cannot work: stag run says so.`,
		Annotations: manual(runManual + carrierManual),
		Example: `  stag run -- ibv_devinfo
  stag run --device eth1 -- ib_write_bw -R 192.0.2.2
  stag run --personality roce -- ucx_perftest 192.0.2.2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usageError{errors.New("run: which program? stag run -- PROGRAM")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkCarrier(&o.Asked, &o.KernelPort, &o.Interfaces, "--device", rdma.ForAnything); err != nil {
				return usageError{fmt.Errorf("run: %w", err)}
			}
			switch {
			case o.KernelPort && len(o.Interfaces) != 0:
				return usageError{errors.New("run: choose --device or --carrier kernel")}
			case o.Personality != "" && !slices.Contains(runner.Personalities, o.Personality):
				return usageError{fmt.Errorf("run: --personality %q: choose %s", o.Personality, strings.Join(runner.Personalities, " or "))}
			}
			o.Program, o.Log, o.Verbosity = args, os.Stderr, verbosity(cmd)
			if err := areUp(o.Interfaces); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			return fmt.Errorf("run: %w", runner.Exec(o))
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	portsFlag(f, &o.Interfaces, "port-if", "i", "interfaces that the daemon must serve, or that a new one gets")
	carrierFlags(f, &o.Asked, &o.KernelPort, "use a daemon of its own over the kernel's TCP, also if one runs")
	f.StringVar(&o.Socket, "socket", "", "`path` of the daemon's socket (default $STAG_DAEMON, else /run/stag/stagd.sock)")
	f.StringVar(&o.Personality, "personality", "", "`device` that programs see: iwarp, or roce for UCX and others that want InfiniBand (default iwarp)")
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	return cmd
}
