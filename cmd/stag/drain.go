package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/drain"
)

func drainCommand() *cobra.Command {
	var (
		o      drain.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "drain IFACE",
		Short: "Move the connections of a port to the other ports of its adapter",
		Long: `Asks the running process whose adapter has the port IFACE to move every connection
to another port. The peers do not notice. No connection comes to the port until
stag drain --undo IFACE. Prints how many have moved, and which cannot and why; the
exit code is then 1. stag show ports shows the state.`,
		Annotations: manual(drainManual),
		Example: `  stag drain eth1
  stag drain --undo eth1`,
		ValidArgsFunction: completeOneInterface,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("drain: name the port: see stag drain --help")}
			}
			return atMost(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch changed := cmd.Flags().Changed; {
			case changed("pid") && o.PID < 1:
				return usageError{fmt.Errorf("drain: -p %d: give the number of a process", o.PID)}
			case changed("adapter") && o.Adapter < 1:
				return usageError{fmt.Errorf("drain: --adapter %d: give the number that stag show ports prints", o.Adapter)}
			}
			o.Device, o.Progress = args[0], os.Stderr
			return runDrain(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Undo, "undo", false, "let connections come to the port again")
	f.IntVarP(&o.PID, "pid", "p", 0, "only an adapter of this process")
	f.IntVar(&o.Adapter, "adapter", 0, "only the adapter with this number in its process")
	f.BoolVar(&o.AllUsers, "all-users", false, "also look at processes of other users")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func runDrain(cmd *cobra.Command, o drain.Options, asJSON bool) error {
	r, err := drain.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	if err == nil && r.Stayed != 0 {
		err = errFailed
	}
	return err
}
